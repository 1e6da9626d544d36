"""A model behind HTTP: what is asked, the worker that translates it, the application and its page.

Wants the extra `serve` (FastAPI, uvicorn, prometheus-client, python-multipart).
"""
