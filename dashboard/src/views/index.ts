/** The views, by path. A view gets the values of ":name" parts as `params`; everything else it reads from the query. */

import type { Component } from "svelte";
import Job from "./Job.svelte";
import Jobs from "./Jobs.svelte";
import Overview from "./Overview.svelte";

export interface ViewRoute {
  pattern: string;
  /** Its props are `params`, or none. */
  view: Component<any>;
}

export const VIEWS: ViewRoute[] = [
  { pattern: "/", view: Overview },
  { pattern: "/jobs", view: Jobs },
  { pattern: "/jobs/:id", view: Job },
];
