"""Models from a hub, through huggingface_hub: search, facts and downloads. Nothing here loads PyTorch."""
