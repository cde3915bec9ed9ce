/** An example of a client: its types are generated from openapi.json with openapi-typescript. */

import createClient from "openapi-fetch";
import type { paths } from "./api.js";
import { change, retrying } from "./daybook.js";

const client = createClient<paths>({ baseUrl: process.env.API_URL, fetch: retrying() });

export const rename = (path: { id: string }, title: string) =>
  change(
    () => client.GET("/todo/{id}", { params: { path } }),
    ({ state: { message } }, etag) =>
      client.POST("/todo/{id}", { params: { path, header: { "If-Match": etag } }, body: { title, message } }),
  );
