"""A model behind HTTP: requests, the worker that translates them, the application and its page.

Wants the extra `serve` (FastAPI, uvicorn, prometheus-client, python-multipart).
"""
