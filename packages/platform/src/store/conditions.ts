/** The conditions of a statement that is put together, and its values. */
export class Conditions {
  readonly values: unknown[];
  readonly #texts: string[];

  constructor(from?: Conditions) {
    this.values = [...(from?.values ?? [])];
    this.#texts = [...(from === undefined ? [] : from.#texts)];
  }

  /** Each `?` stands for the next value; a condition on a value that is not given is left out. */
  add(condition: string, ...given: readonly unknown[]): void {
    if (given.length > 0 && given.every((value) => value === undefined)) return;
    let text = condition;
    for (const value of given) {
      this.values.push(value);
      text = text.replace('?', `$${this.values.length}`);
    }
    this.#texts.push(text);
  }

  get where(): string {
    return this.#texts.length === 0 ? '' : `WHERE ${this.#texts.join(' AND ')}`;
  }
}
