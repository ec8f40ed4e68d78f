/** The window: its size and how far it is scrolled, as reactive state. */
class PageWindow {
  width = $state(innerWidth);
  height = $state(innerHeight);
  scrollY = $state(scrollY);

  get isNarrow(): boolean {
    return this.width < 720;
  }

  start(): () => void {
    let frame = 0;
    const look = (): void => {
      frame = 0;
      this.width = innerWidth;
      this.height = innerHeight;
      this.scrollY = scrollY;
    };
    const soon = (): void => {
      frame ||= requestAnimationFrame(look);
    };
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
      cancelAnimationFrame(frame);
    };
  }
}

export const page = new PageWindow();
