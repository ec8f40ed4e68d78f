/** What this browser may do, as the server says with every answer. */
class Session {
  /** False: the token only reads, or the server does. Actions are hidden. */
  canWrite = $state(true);
  /** The cookie is not valid any more: the page asks to log in again. */
  hasEnded = $state(false);

  /** This browser came by the login page, and can log out. */
  isLoggedIn = $state(false);

  heard(headers: Headers): void {
    const access = headers.get("Everpoll-Access");
    if (access === null) return;
    this.canWrite = access === "write";
    this.isLoggedIn = headers.has("Everpoll-Session");
    this.hasEnded = false;
  }

  end(): void {
    this.hasEnded = true;
  }
}

export const session = new Session();
