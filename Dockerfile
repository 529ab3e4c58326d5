# The image is what images/build.sh makes; see there. Build it with: docker build -t cardwise:VERSION .
FROM debian:bookworm-slim AS build
RUN apt-get update && apt-get install --yes --no-install-recommends python3-pip
COPY . /source
RUN /source/images/build.sh /image

FROM scratch
COPY --from=build /image /
USER 65532:65532
