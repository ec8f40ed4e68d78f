/** The loop that reads everything again where no hint asks for it. */

export interface RefreshLoop {
  pushUp(): void;
  pushDown(): void;
  pause(reason: "hidden" | "operator"): void;
  resume(reason: "hidden" | "operator"): void;
  close(): void;
}

const POLL_MS = 10_000;
const SAFETY_MS = 60_000;

/** Start the loop; `readAll` returns false if the server did not answer. */
export function refreshLoop(readAll: () => Promise<boolean>): RefreshLoop {
  const reasons = new Set<string>();
  let hasPush = false;
  let timer: ReturnType<typeof setTimeout> | undefined;
  const plan = (): void => {
    clearTimeout(timer);
    if (reasons.size > 0) return;
    timer = setTimeout(() => void readAll().finally(plan), hasPush ? SAFETY_MS : POLL_MS);
  };
  plan();
  return {
    pushUp: () => {
      hasPush = true;
      plan();
    },
    pushDown: () => {
      hasPush = false;
      plan();
    },
    pause: (reason) => {
      reasons.add(reason);
      clearTimeout(timer);
    },
    resume: (reason) => {
      reasons.delete(reason);
      plan();
    },
    close: () => clearTimeout(timer),
  };
}
