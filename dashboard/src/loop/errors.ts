/** An option or an argument that a loop cannot use. The message names the loop and says what to write. */
export class BadInput extends Error {
  override readonly name = "BadInput";
}
