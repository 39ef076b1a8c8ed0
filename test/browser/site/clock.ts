/** Runs before the scripts of a page: its timers and its clock become the test's, which moves them (clock.ts of the folder above). */
import { install } from '@sinonjs/fake-timers';

// The time of requests is not moved: AbortSignal.timeout() is the browser's own.
const clock = install({
  toFake: ['Date', 'performance', 'setTimeout', 'clearTimeout', 'setInterval', 'clearInterval'],
  // As time passes by itself where nobody moves it.
  shouldAdvanceTime: true,
});
Object.assign(window, { testClock: clock });
