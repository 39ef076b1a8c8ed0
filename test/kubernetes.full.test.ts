/** Kubernetes' own schemas accept the manifests of deploy/kubernetes; deploy.test.ts has what fits together in them. */
import assert from 'node:assert/strict';
import { globSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import test from 'node:test';
import { parseAllDocuments } from 'yaml';
import { importTool } from '../scripts/tool.ts';

const root = join(import.meta.dirname, '..');

interface Resource {
  readonly apiVersion: string;
  readonly kind: string;
  readonly metadata: { readonly name: string };
}
type Model = new (resource: object) => { validate(): void };

const { models } = await importTool<{
  models: Readonly<Record<string, Readonly<Record<string, Model>>>>;
}>('checks', 'kubernetes');

test('Kubernetes’ own schemas accept every manifest', () => {
  const resources = globSync('deploy/kubernetes/*.yaml', { cwd: root })
    .filter((file) => !file.endsWith('kustomization.yaml'))
    .flatMap((file) => parseAllDocuments(readFileSync(join(root, file), 'utf8')))
    .map((one) => one.toJS() as Resource);
  assert.ok(resources.length > 10);
  for (const resource of resources) {
    const { apiVersion, kind, metadata } = resource;
    const Kind = models[apiVersion]?.[kind];
    assert.ok(Kind, `${apiVersion} ${kind} is known`);
    assert.doesNotThrow(() => new Kind(resource).validate(), `${kind} ${metadata.name}`);
  }
  const Deployment = models['apps/v1']?.['Deployment'];
  assert.ok(Deployment);
  const wrong = new Deployment({ metadata: { name: 'x' }, spec: { replicas: 'two' } });
  assert.throws(() => wrong.validate(), 'the schemas do look');
});
