/** The places of the navigation, in order, with their letter behind "g". */

import type { IconName } from "../components/icons.ts";

export interface NavPlace {
  name: string;
  path: string;
  letter: string;
  icon: IconName;
  /** Shown in the bottom bar of a narrow page; the others stand behind "More". */
  isFirst?: boolean;
}

export const PLACES: NavPlace[] = [
  { name: "Overview", path: "/", letter: "o", icon: "overview", isFirst: true },
  { name: "Jobs", path: "/jobs", letter: "j", icon: "jobs", isFirst: true },
  { name: "Runs", path: "/runs", letter: "r", icon: "runs", isFirst: true },
  { name: "Services", path: "/services", letter: "s", icon: "services", isFirst: true },
  { name: "Loops", path: "/loops", letter: "l", icon: "loops" },
  { name: "Workers", path: "/workers", letter: "w", icon: "workers" },
  { name: "Queues", path: "/queues", letter: "q", icon: "queues" },
  { name: "Schedules", path: "/schedules", letter: "c", icon: "schedules" },
  { name: "Tables", path: "/tables", letter: "t", icon: "tables" },
  { name: "Events", path: "/events", letter: "e", icon: "events" },
  { name: "Doctor", path: "/doctor", letter: "d", icon: "doctor" },
];

/** Return whether a place leads to a path, or to something below it. */
export function isAt(place: NavPlace, path: string): boolean {
  if (place.path === "/services" && path === "/graph") return true;
  return place.path === "/" ? path === "/" : path === place.path || path.startsWith(`${place.path}/`);
}
