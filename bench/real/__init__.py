"""What of the data teaches a real pretrained model to repair its mistakes."""
