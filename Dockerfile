# The service without root: docker build --tag mue . && docker run --publish 8000:8000 --env MUE_TOKEN mue
FROM python:3.11-slim
WORKDIR /app
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY src src
RUN pip install --no-cache-dir --constraint constraints.txt '.[serve]' \
    && useradd --create-home --uid 10001 mue
USER mue
WORKDIR /home/mue
ENV MPLCONFIGDIR=/tmp PYTHONDONTWRITEBYTECODE=1
EXPOSE 8000
HEALTHCHECK CMD ["python", "-c", "import urllib.request as r; r.urlopen('http://127.0.0.1:8000/healthz')"]
ENTRYPOINT ["mue"]
CMD ["serve", "--host", "0.0.0.0"]
