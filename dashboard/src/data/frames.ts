/** Server-sent events, read from an answer: `take` gets each event until the stream ends. */

export interface Frame {
  event: string;
  id: string | null;
  data: string;
}

/** Read the frames of a stream. `heard` is called for every piece, comments included. */
export async function readFrames(answer: Response, take: (frame: Frame) => void, heard: () => void = () => undefined): Promise<void> {
  if (answer.body === null) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    heard();
    text += value;
    const frames = text.split("\n\n");
    text = frames.pop() ?? "";
    for (const frame of frames) {
      const read = parsed(frame);
      if (read !== null) take(read);
    }
  }
}

function parsed(text: string): Frame | null {
  const fields: Record<string, string> = {};
  for (const line of text.split("\n")) {
    const [name, ...rest] = line.split(": ");
    if (name !== undefined && name !== "") fields[name] = rest.join(": ");
  }
  return fields["data"] === undefined ? null : { event: fields["event"] ?? "message", id: fields["id"] ?? null, data: fields["data"] };
}
