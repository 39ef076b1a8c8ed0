import * as sdk from '@duebridge/web/embed';
import * as react from '@duebridge/web/embed/react';
import * as testing from '@duebridge/web/embed/testing';

export const duebridge = { sdk, react, testing };
