"""The app: a local web page where a formula goes in and a proved Transformer comes out.

The server holds no mathematics. It checks sizes and origins, keeps a folder per job, and starts a worker process for
everything that reads a formula, computes or draws. Starlette and server-sent events carry it: one page, a stream of
snapshots, plain files; the figures are the ones of ``to_html``, so no library of figures is shipped twice.
"""
