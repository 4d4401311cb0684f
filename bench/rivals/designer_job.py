"""The job in NeMo Data Designer, run by its own Python: designer_job.py BASE_URL FOLDER COUNT; prints how many answers
there are.

The same command again goes on in the same folder.
"""

import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def main(base_url: str, folder: str, count: int) -> None:
    # Typed as Any: it is not installed where this file is checked.
    config: Any = import_module("data_designer.config")
    interface: Any = import_module("data_designer.interface")
    pandas: Any = import_module("pandas")
    parallel = config.ChatCompletionInferenceParams(max_parallel_requests=256)
    model = config.ModelConfig(
        alias="bench", model="bench", provider="bench", inference_parameters=parallel, skip_health_check=True
    )
    rows = Path(folder) / "rows.csv"
    rows.parent.mkdir(parents=True, exist_ok=True)
    pandas.DataFrame({"number": range(count)}).to_csv(rows, index=False)
    builder = config.DataDesignerConfigBuilder(model_configs=[model])
    builder.with_seed_dataset(config.LocalFileSeedSource(path=str(rows)))
    prompt = "Describe the person with the number {{ number }} in one sentence."
    builder.add_column(config.LLMTextColumnConfig(name="answer", model_alias="bench", prompt=prompt))
    designer = interface.DataDesigner(
        artifact_path=Path(folder) / "artifacts",
        model_providers=[config.ModelProvider(name="bench", endpoint=base_url, provider_type="openai", api_key="none")],
    )
    # A row group is what it can resume by; the default of 1,000 would begin this job from nothing.
    designer.set_run_config(config.RunConfig(buffer_size=100, otel_metrics_port=None))
    made = designer.create(builder, num_records=count, dataset_name="bench", resume=config.ResumeMode.IF_POSSIBLE)
    print(len(made.load_dataset()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
