"""Names and seeds of episodes: functions of the run's seed, the persona and its position, and of nothing else."""

from hashlib import blake2b

from refinesynth.trajectory import Persona


def episode_id(persona: Persona, *, index: int, seed: int) -> str:
    """The persona's position and eight hexadecimal digits of its text and the run's seed."""
    digest = blake2b(f"{seed}\n{persona.text}".encode(), digest_size=4).hexdigest()
    return f"{index:06d}-{digest}"


def episode_seed(*, index: int, seed: int) -> int:
    """The episode's own seed, from 0 to 2**31 - 1, which every provider accepts."""
    digest = blake2b(f"{seed}/{index}".encode(), digest_size=4).digest()
    return int.from_bytes(digest, "big") & 0x7FFF_FFFF
