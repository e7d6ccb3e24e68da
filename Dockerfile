# The labs, their grading and JupyterLab, for laptops, Codespaces, JupyterHub and Binder.
#   docker build -t distlearn . && docker run --rm -p 8888:8888 --shm-size=1g distlearn
# Grading runs submissions in a sandbox, which a container must be allowed to make: course/GRADING.md says by which options.
# `make image-check` runs the same steps in a Debian root without a container engine.
FROM debian:bookworm-slim AS system
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends bubblewrap ca-certificates g++ git make python3-venv \
    && rm -rf /var/lib/apt/lists/*
# Binder passes both
ARG NB_USER=student
ARG NB_UID=1000
RUN useradd --create-home --uid "$NB_UID" "$NB_USER"

FROM system AS course
ARG NB_USER=student
USER $NB_USER
WORKDIR /home/$NB_USER/distlearn
COPY --chown=$NB_USER . .
RUN make env EXTRAS=course,hub
ENV PATH="/home/$NB_USER/distlearn/.venv/bin:$PATH" OMP_NUM_THREADS=1
# a hub starts JupyterLab by its own command
ENV JUPYTER_CONFIG_PATH="/home/$NB_USER/distlearn/course/distcourse/jupyter"
EXPOSE 8888
CMD ["distlearn", "start", "--ip=0.0.0.0", "--no-browser"]
