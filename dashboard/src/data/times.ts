/** Instants and spans as text. Pure; spans are in seconds, instants in milliseconds since the epoch. */

import type { Zone } from "./preferences.svelte.ts";

/** Return "340ms", "2.4s", "12s", "4m 10s", "3h 5m" or "2d 4h". */
export function span(seconds: number): string {
  const value = Math.max(0, seconds);
  if (value < 0.00005) return "0s";
  if (value < 0.00995) return `${Number((value * 1000).toFixed(1))}ms`;
  if (value < 1) return `${Math.round(value * 1000)}ms`;
  if (value < 9.95) return `${Number(value.toFixed(1))}s`;
  return wholeSpan(value);
}

/** Return a span in whole seconds, for what counts on: "0s", "9s", "4m 10s". */
export function wholeSpan(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds + 1e-6));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return two(Math.floor(whole / 60), "m", whole % 60, "s");
  if (whole < 86_400) return two(Math.floor(whole / 3600), "h", Math.floor((whole % 3600) / 60), "m");
  return two(Math.floor(whole / 86_400), "d", Math.floor((whole % 86_400) / 3600), "h");
}

function two(large: number, largeUnit: string, small: number, smallUnit: string): string {
  return small === 0 ? `${large}${largeUnit}` : `${large}${largeUnit} ${small}${smallUnit}`;
}

/** Return one unit, for ages in lists: "12s", "4m", "3h", "5d". */
export function roughSpan(seconds: number): string {
  const whole = Math.max(0, Math.floor(seconds));
  if (whole < 60) return `${whole}s`;
  if (whole < 3600) return `${Math.floor(whole / 60)}m`;
  if (whole < 86_400) return `${Math.floor(whole / 3600)}h`;
  return `${Math.floor(whole / 86_400)}d`;
}

/** Return "12s ago", "in 4m" or "now". */
export function relative(instantMs: number, nowMs: number): string {
  const seconds = (nowMs - instantMs) / 1000;
  if (Math.abs(seconds) < 1) return "now";
  return seconds > 0 ? `${roughSpan(seconds)} ago` : `in ${roughSpan(-seconds)}`;
}

/** Return what is left until an instant: "0:41", "12:05", "2h 5m"; then "due now", then "late 3s". Never negative. */
export function countdown(instantMs: number, nowMs: number): string {
  const left = Math.ceil((instantMs - nowMs) / 1000);
  if (left <= 0) {
    const late = Math.floor((nowMs - instantMs) / 1000);
    return late < 3 ? "due now" : `late ${wholeSpan(late)}`;
  }
  if (left < 3600) return `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}`;
  return wholeSpan(left);
}

const formats = new Map<string, Intl.DateTimeFormat>();

function format(zone: Zone, name: string, options: Intl.DateTimeFormatOptions): Intl.DateTimeFormat {
  const key = `${zone} ${name}`;
  let made = formats.get(key);
  if (made === undefined) {
    made = new Intl.DateTimeFormat("en-GB", zone === "utc" ? { ...options, timeZone: "UTC" } : options);
    formats.set(key, made);
  }
  return made;
}

function parts(made: Intl.DateTimeFormat, instantMs: number): Record<string, string> {
  return Object.fromEntries(made.formatToParts(instantMs).map((part) => [part.type, part.value]));
}

/** Return "2026-01-02 03:04:05.678 UTC", in the zone of the page. */
export function absolute(instantMs: number, zone: Zone): string {
  const made = format(zone, "absolute", {
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    fractionalSecondDigits: 3,
    hourCycle: "h23",
    timeZoneName: "short",
  });
  const at = parts(made, instantMs);
  const day = `${at["year"]}-${at["month"]}-${at["day"]}`;
  return `${day} ${at["hour"]}:${at["minute"]}:${at["second"]}.${at["fractionalSecond"]} ${at["timeZoneName"]}`;
}

/** Return "03:04:05", or "03:04" without seconds. */
export function timeOfDay(instantMs: number, zone: Zone, withSeconds = true): string {
  const made = format(zone, "time", { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
  const at = parts(made, instantMs);
  return withSeconds ? `${at["hour"]}:${at["minute"]}:${at["second"]}` : `${at["hour"]}:${at["minute"]}`;
}

/** Return "2 Jan 03:04". */
export function dayAndTime(instantMs: number, zone: Zone): string {
  const made = format(zone, "day", { day: "numeric", month: "short" });
  return `${made.format(instantMs)} ${timeOfDay(instantMs, zone, false)}`;
}

/** Return the milliseconds of an instant of the API. */
export function ms(instant: string): number {
  return Date.parse(instant);
}

/** Return what a `datetime-local` field shows for an instant: "2026-01-02T03:04:05", in the zone of the page. */
export function fieldText(instantMs: number, zone: Zone): string {
  const made = format(zone, "field", {
    year: "numeric",
    month: "2-digit",
    day: "2-digit",
    hour: "2-digit",
    minute: "2-digit",
    second: "2-digit",
    hourCycle: "h23",
  });
  const at = parts(made, instantMs);
  return `${at["year"]}-${at["month"]}-${at["day"]}T${at["hour"]}:${at["minute"]}:${at["second"]}`;
}

/** Return the instant that the text of such a field means, as the API wants it; null for no instant. */
export function fieldInstant(text: string, zone: Zone): string | null {
  if (text === "") return null;
  const instant = new Date(zone === "utc" ? `${text}Z` : text);
  return Number.isNaN(instant.getTime()) ? null : instant.toISOString();
}
