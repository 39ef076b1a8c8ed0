/** The platform as a library: start one in this process. */
import '@duebridge/contract/supported-node';
export { readPlatformConfig, type PlatformConfig, type Rate } from './config.ts';
export type {
  AdapterMethod,
  AdapterPage,
  CollectedElsewhere,
  FundingAdapter,
  FundsOrder,
  PreparedOrder,
  ProcessorAuthorization,
  ProcessorCapture,
  ProcessorEvent,
  ProcessorRequest,
} from './funding/adapter.ts';
export { startPlatform, type Platform } from './server.ts';
