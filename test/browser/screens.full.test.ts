/** The screens that few customers see, checked for everybody; `screens.test.ts` has the others. */
import { checkScreens } from './screen-checks.ts';
import { SCREENS } from './screens.ts';

checkScreens(SCREENS.filter(({ isCommon }) => !isCommon));
