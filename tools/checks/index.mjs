import { fileURLToPath } from 'node:url';
import * as apps from 'kubernetes-models/apps/v1';
import * as batch from 'kubernetes-models/batch/v1';
import * as networking from 'kubernetes-models/networking.k8s.io/v1';
import * as policy from 'kubernetes-models/policy/v1';
import * as core from 'kubernetes-models/v1';

export { checkPackage, createPackageFromTarballData } from '@arethetypeswrong/core';
export { generateApi } from 'swagger-typescript-api';

/** Kubernetes' own schemas, by the apiVersion of a manifest. */
export const models = {
  v1: core,
  'apps/v1': apps,
  'batch/v1': batch,
  'policy/v1': policy,
  'networking.k8s.io/v1': networking,
};

/** The program of redocly's linter. */
export const linter = fileURLToPath(import.meta.resolve('@redocly/cli/bin/cli.js'));
