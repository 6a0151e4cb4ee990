# The sample application as an image, for docker-compose.yml. The library itself ships through npm, not through this.
FROM node:20-bookworm-slim AS build
WORKDIR /app
COPY package.json package-lock.json ./
RUN npm ci
COPY tsconfig.json ./
COPY scripts/tsconfig.build.json scripts/
COPY src src
RUN npm run build

FROM node:20-bookworm-slim
WORKDIR /app
ENV NODE_ENV=production
# The sample needs NestJS and Mongoose, which the library leaves to its users: they are development dependencies here.
COPY --from=build /app/node_modules node_modules
COPY --from=build /app/package.json ./
COPY --from=build /app/dist dist
USER node
CMD ["node", "dist/main.js"]
