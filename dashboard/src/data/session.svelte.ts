/** What this browser may do, as the server says with every answer. */
class Session {
  /** False: the token only reads, or the server does. Actions are hidden. */
  canWrite = $state(true);
  /** The cookie is not valid any more: the page asks to log in again. */
  hasEnded = $state(false);

  heardAccess(access: string | null): void {
    if (access === null) return;
    this.canWrite = access === "write";
    this.hasEnded = false;
  }

  end(): void {
    this.hasEnded = true;
  }
}

export const session = new Session();
