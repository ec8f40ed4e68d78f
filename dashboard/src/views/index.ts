/** The views, by path. A view gets the values of ":name" parts as `params`; everything else it reads from the query. */

import type { Component } from "svelte";
import Causes from "./Causes.svelte";
import Events from "./Events.svelte";
import Graph from "./Graph.svelte";
import Job from "./Job.svelte";
import Jobs from "./Jobs.svelte";
import Loops from "./Loops.svelte";
import Overview from "./Overview.svelte";
import Polling from "./Polling.svelte";
import Queue from "./Queue.svelte";
import Queues from "./Queues.svelte";
import Service from "./Service.svelte";
import Services from "./Services.svelte";
import Doctor from "./Doctor.svelte";
import Run from "./Run.svelte";
import Runs from "./Runs.svelte";
import Schedules from "./Schedules.svelte";
import Tables from "./Tables.svelte";
import Workers from "./Workers.svelte";

export interface ViewRoute {
  pattern: string;
  /** Its props are `params`, or none. */
  view: Component<any>;
}

export const VIEWS: ViewRoute[] = [
  { pattern: "/", view: Overview },
  { pattern: "/jobs", view: Jobs },
  { pattern: "/jobs/causes", view: Causes },
  { pattern: "/jobs/:id", view: Job },
  { pattern: "/loops", view: Loops },
  { pattern: "/workers", view: Workers },
  { pattern: "/queues", view: Queues },
  { pattern: "/queues/:name", view: Queue },
  { pattern: "/services", view: Services },
  { pattern: "/services/:name", view: Service },
  { pattern: "/graph", view: Graph },
  { pattern: "/events", view: Events },
  { pattern: "/runs", view: Runs },
  { pattern: "/runs/polling", view: Polling },
  { pattern: "/runs/:id", view: Run },
  { pattern: "/schedules", view: Schedules },
  { pattern: "/tables", view: Tables },
  { pattern: "/tables/:name", view: Tables },
  { pattern: "/doctor", view: Doctor },
];
