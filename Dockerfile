# A store in a volume, for the user kbproc alone. An agent starts it by:
#   docker run -i --rm -v kbproc:/store kbproc mcp
FROM python:3.12-slim AS build
WORKDIR /source
COPY . .
RUN python -m venv /opt/kbproc && /opt/kbproc/bin/pip install --no-cache-dir '.[meaning]'

FROM python:3.12-slim
COPY --from=build /opt/kbproc /opt/kbproc
RUN useradd --create-home --uid 10001 kbproc && install -d -m 0700 -o kbproc /store
ENV PATH=/opt/kbproc/bin:$PATH KBPROC_STORE=/store
USER kbproc
VOLUME /store
HEALTHCHECK --interval=1m --timeout=10s CMD ["kbproc", "ping", "--timeout", "8"]
ENTRYPOINT ["kbproc"]
CMD ["serve"]
