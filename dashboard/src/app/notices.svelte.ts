/** Notices: what became of an action, and questions before one. */

export interface Notice {
  id: number;
  tone: "ok" | "fail";
  text: string;
  link?: { text: string; path: string } | undefined;
}

export interface Question {
  title: string;
  /** Sentences, one paragraph each. */
  says: string[];
  /** What the button says that goes on. */
  action: string;
  isDangerous?: boolean;
  /** A text that has to be typed first. */
  typed?: string;
  /** Ask for a reason; it may stay empty. */
  asksReason?: boolean;
}

export interface Answer {
  reason: string;
}

const SHOWN_MS = 8000;

class Notices {
  list = $state.raw<Notice[]>([]);
  question = $state.raw<Question | null>(null);
  #answer: ((answer: Answer | null) => void) | null = null;
  #count = 0;

  tell(tone: Notice["tone"], text: string, link?: Notice["link"]): void {
    this.#count += 1;
    const id = this.#count;
    this.list = [...this.list.slice(-3), { id, tone, text, link }];
    if (tone === "ok") setTimeout(() => this.drop(id), SHOWN_MS);
  }

  drop(id: number): void {
    this.list = this.list.filter((one) => one.id !== id);
  }

  /** Ask, and wait; null: no. */
  ask(question: Question): Promise<Answer | null> {
    this.reply(null);
    this.question = question;
    return new Promise((resolve) => {
      this.#answer = resolve;
    });
  }

  reply(answer: Answer | null): void {
    const resolve = this.#answer;
    this.#answer = null;
    this.question = null;
    resolve?.(answer);
  }
}

export const notices = new Notices();
