/** What an operator does with services, their incidents and their maintenance windows. */

import { notices } from "../app/notices.svelte.ts";
import { carryOut } from "./actions.ts";
import { segment, withQuery } from "./api.ts";
import type { IncidentItem, MaintenanceWindow, ServiceDetail } from "./shapes.ts";

const path = (name: string, action: string): string => `/api/services/${segment(name)}/${action}`;
const event = (name: string, kind = "service"): { text: string; path: string } => ({
  text: "See the event",
  path: `/events?kind=${kind}&name=${segment(name)}`,
});

export function checkService(name: string): Promise<ServiceDetail | null> {
  return carryOut<ServiceDetail>({
    path: path(name, "check"),
    done: (now) => ({ text: `Confirmed: ${name} was checked, and is ${now.status}.`, link: event(name) }),
  });
}

/** Send no alerts for a span such as "2h". */
export function muteService(name: string, span: string): Promise<ServiceDetail | null> {
  return carryOut<ServiceDetail>({
    path: path(name, "mute"),
    body: { span },
    done: () => ({ text: `Confirmed: no alerts about ${name} for ${span}.`, link: event(name) }),
  });
}

export function unmuteService(name: string): Promise<ServiceDetail | null> {
  return carryOut<ServiceDetail>({
    path: path(name, "unmute"),
    done: () => ({ text: `Confirmed: alerts about ${name} are sent again.`, link: event(name) }),
  });
}

/** Ask for a reason, then pause. */
export async function pauseService(name: string): Promise<ServiceDetail | null> {
  const answer = await notices.ask({
    title: `Pause ${name}?`,
    says: ["No worker of the fleet looks at it until it is resumed. Its open incidents are closed, and the time counts neither as up nor as down."],
    action: "Pause",
    asksReason: true,
  });
  if (answer === null) return null;
  return carryOut<ServiceDetail>({
    path: path(name, "pause"),
    body: { reason: answer.reason },
    done: () => ({ text: `Confirmed: ${name} is paused.`, link: event(name) }),
  });
}

export function resumeService(name: string): Promise<ServiceDetail | null> {
  return carryOut<ServiceDetail>({
    path: path(name, "resume"),
    done: () => ({ text: `Confirmed: ${name} is looked at again.`, link: event(name) }),
  });
}

export function acknowledge(incident: IncidentItem): Promise<IncidentItem | null> {
  return carryOut<IncidentItem>({
    path: `/api/incidents/${segment(incident.id)}/ack`,
    done: (now) => ({
      text: `Confirmed: ${now.acknowledged_by ?? "an operator"} knows of it; it alerts no more.`,
      link: event(incident.id, "incident"),
    }),
  });
}

export interface PlannedWindow {
  starts_at: string;
  ends_at: string;
  reason: string;
}

export function planMaintenance(name: string, window: PlannedWindow): Promise<MaintenanceWindow | null> {
  return carryOut<MaintenanceWindow>({
    path: "/api/maintenance",
    body: { ...window, services: [name] },
    done: (now) => ({ text: now.is_active ? `Confirmed: ${name} is in maintenance.` : `Confirmed: maintenance of ${name} is planned.` }),
  });
}

export function removeMaintenance(window: MaintenanceWindow): Promise<unknown> {
  return carryOut({
    method: "DELETE",
    path: withQuery("/api/maintenance", { id: window.id }),
    done: () => ({ text: "Confirmed: the maintenance window is removed." }),
  });
}
