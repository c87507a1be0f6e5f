"""One page each: build and bind only; what a page decides lives in its view-model."""
