package event_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/event"
)

var update = flag.Bool("update", false, "write the published schemas from the Go types")

// The ten events of the app control plane, the nine of shared runtimes with the
// names in their documents (requirements A8, D1, D2), and Berth's own.
func TestEveryEventOfTheContractIsDefined(t *testing.T) {
	want := strings.Fields(`
		apps.entitlement.updated
		apps.instance.requested apps.instance.running apps.instance.failed apps.instance.deleting apps.instance.deleted
		berth.instance.suspended berth.instance.resumed berth.members.moved berth.jobs.lost
		apps.artifact.registered apps.artifact.promoted apps.artifact.deprecated apps.artifact.retired
		apps.shared_runtime.requested apps.shared_runtime.running apps.shared_runtime.failed
		apps.shared_runtime.deleting apps.shared_runtime.deleted
		apps.shared_runtime.attachment.requested apps.shared_runtime.attachment.attached
		apps.shared_runtime.attachment.failed apps.shared_runtime.attachment.detached
		berth.operation.requested berth.operation.done berth.operation.failed berth.operation.expired berth.retry.triggered
		berth.node.ready berth.node.not_ready berth.node.unknown berth.node.lost
		berth.queuemap.mode_changed berth.queuemap.rollback_began berth.queuemap.rollback_expired berth.queuemap.rollback_ended
		berth.node.threshold_exceeded berth.node.threshold_ended berth.condition.changed berth.rule.fired berth.rule.done berth.rule.failed`)
	var got []string
	for _, d := range event.Definitions() {
		got = append(got, string(d.Type))
		if d.Status != "" {
			of, ok := event.Of(d.Kind, d.Status)
			require.True(t, ok)
			require.Equal(t, d.Type, of.Type)
		}
	}
	require.ElementsMatch(t, want, got)
	_, ok := event.Of(schema.KindInstance, "deploying")
	require.False(t, ok)
	_, ok = event.Of(schema.KindEntitlement, "")
	require.False(t, ok)
}

// The published schemas match the Go types. With -update the test writes them.
func TestPublishedSchemasMatchGoTypes(t *testing.T) {
	want := map[string][]byte{"asyncapi.yaml": asyncAPI(t)}
	for _, d := range event.Definitions() {
		want["schemas/"+string(d.Type)+".json"] = schemaOf(t, d)
	}
	if *update {
		stale, err := filepath.Glob("schemas/*.json")
		require.NoError(t, err)
		for _, f := range stale {
			require.NoError(t, os.Remove(f))
		}
		for name, data := range want {
			require.NoError(t, os.WriteFile(name, data, 0o644))
		}
		t.Log("written; run again without -update")
		return
	}
	got, err := event.Published()
	require.NoError(t, err)
	require.Equal(t, slices.Sorted(maps.Keys(want)), slices.Sorted(maps.Keys(got)))
	for name, data := range want {
		require.Equal(t, string(data), string(got[name]), "%s is not what the types say: go test ./schema/event -update", name)
	}
}

// The events of a scheduler's engine that Berth has are found by the names of its design (requirement E7): one of each.
func TestEngineEventsHaveTheirNames(t *testing.T) {
	var got []string
	for _, d := range event.Definitions() {
		if name := d.Type.EngineName(); name != "" {
			got = append(got, name)
			var document map[string]any
			require.NoError(t, json.Unmarshal(schemaOf(t, d), &document))
			require.Equal(t, name, document["x-engine-event"])
		}
	}
	require.ElementsMatch(t, strings.Fields("NodeReady NodeNotReady NodeLost WorkloadScheduled WorkloadFailed RetryTriggered Rescheduled"), got)
}

// schemaOf returns the JSON Schema of one event, envelope and payload.
func schemaOf(t *testing.T, d event.Definition) []byte {
	t.Helper()
	payload := object(t, reflect.TypeOf(d.Payload))
	if d.Status != "" {
		status := payload["properties"].(map[string]any)["status"].(map[string]any)
		status["const"] = d.Status
	}
	// The Go type defines the fields of the envelope; this map describes them.
	means := map[string]map[string]any{
		"event_id":       {"type": "string", "pattern": "^[0-9a-f]{32}$", "description": "the same if the same event is announced again"},
		"event_type":     {"const": string(d.Type)},
		"occurred_at":    {"type": "string", "format": "date-time", "description": "in UTC"},
		"version":        {"const": event.Version},
		"correlation_id": {"type": "string", "description": "of the commit that caused it, as in logs, status, audit and comments"},
		"payload":        payload,
	}
	envelope := object(t, reflect.TypeFor[plan.Event]())
	require.ElementsMatch(t, envelope["required"], slices.Collect(maps.Keys(means)))
	document := map[string]any{
		"$schema": "http://json-schema.org/draft-07/schema#", "title": string(d.Type), "description": d.About,
		"type": "object", "additionalProperties": false, "required": envelope["required"], "properties": means,
	}
	if name := d.Type.EngineName(); name != "" {
		document["x-engine-event"] = name
	}
	return indented(t, document)
}

// object returns the JSON Schema of a struct with required fields only.
func object(t *testing.T, typ reflect.Type) map[string]any {
	t.Helper()
	properties, required := map[string]any{}, []string{}
	for f := range typ.Fields() {
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		require.NotEmpty(t, name, "%s.%s", typ, f.Name)
		require.Empty(t, options, "%s.%s: readers count on every field", typ, f.Name)
		p := map[string]any{"description": f.Tag.Get("doc")}
		switch f.Type.Kind() {
		case reflect.String:
			p["type"] = "string"
		case reflect.Bool:
			p["type"] = "boolean"
		case reflect.Struct:
			if f.Type == reflect.TypeFor[time.Time]() {
				break
			}
			p = object(t, f.Type)
			p["description"] = f.Tag.Get("doc")
		}
		properties[name] = p
		required = append(required, name)
	}
	return map[string]any{"type": "object", "additionalProperties": false, "required": required, "properties": properties}
}

// asyncAPI returns the AsyncAPI document of all events.
func asyncAPI(t *testing.T) []byte {
	t.Helper()
	messages, inChannel, sent := map[string]any{}, map[string]any{}, []any{}
	for _, d := range event.Definitions() {
		name := string(d.Type)
		messages[name] = map[string]any{
			"name": name, "summary": d.About, "contentType": "application/json",
			"correlationId": map[string]any{"location": "$message.payload#/correlation_id"},
			"payload": map[string]any{
				"schemaFormat": "application/schema+json;version=draft-07",
				"schema":       ref("./schemas/" + name + ".json"),
			},
		}
		inChannel[name] = ref("#/components/messages/" + name)
		sent = append(sent, ref("#/channels/events/messages/"+name))
	}
	data, err := yaml.Marshal(map[string]any{
		"asyncapi": "3.0.0",
		"info": map[string]any{
			"title": "Berth events", "version": event.Version,
			"description": "What happens to the resources of an estate. Each event is announced once and, for one resource, in order. " +
				"Who reads again finds the same event_id.",
		},
		"defaultContentType": "application/json",
		"channels": map[string]any{"events": map[string]any{
			"address":     "events/{year}/{month}/{day}/{hour}/{segment}.jsonl",
			"title":       "Event log",
			"description": "The branch berth/status of the estate. A segment is a file that never changes; each of its lines is one event.",
			"parameters": map[string]any{
				"year":    map[string]any{"description": "four digits, UTC, as all of them"},
				"month":   map[string]any{"description": "two digits"},
				"day":     map[string]any{"description": "two digits"},
				"hour":    map[string]any{"description": "two digits"},
				"segment": map[string]any{"description": "number of its last event, and the epoch of the daemon that wrote it"},
			},
			"messages": inChannel,
		}},
		"operations": map[string]any{"announce": map[string]any{
			"action": "send", "summary": "Berth announces an event.", "channel": ref("#/channels/events"), "messages": sent,
		}},
		"components": map[string]any{"messages": messages},
	})
	require.NoError(t, err)
	return append([]byte("# Written from the Go types of this package: go test ./schema/event -update\n"), data...)
}

func ref(to string) map[string]any { return map[string]any{"$ref": to} }

func indented(t *testing.T, v any) []byte {
	t.Helper()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	require.NoError(t, e.Encode(v))
	return b.Bytes()
}

// Each schema accepts only its event: no missing or additional field, no other
// type, no other status.
func TestSchemaAcceptsOnlyItsEvent(t *testing.T) {
	files, err := event.Published()
	require.NoError(t, err)
	for _, d := range event.Definitions() {
		compiled := compile(t, string(d.Type), files)
		payload := map[string]any{}
		require.NoError(t, json.Unmarshal(indented(t, d.Payload), &payload))
		if d.Status != "" {
			payload["status"] = d.Status
		}
		good := func() map[string]any {
			return map[string]any{
				"event_id": event.ID(d.Type, schema.Key{}, "", 0), "event_type": string(d.Type), "occurred_at": "2026-08-01T10:00:00Z",
				"version": event.Version, "correlation_id": "c1", "payload": maps.Clone(payload),
			}
		}
		require.NoError(t, compiled.Validate(good()), d.Type)
		for name, spoil := range map[string]func(map[string]any){
			"another type":   func(e map[string]any) { e["event_type"] = "apps.other" },
			"no correlation": func(e map[string]any) { delete(e, "correlation_id") },
			"one more field": func(e map[string]any) { e["more"] = 1 },
			"a free id":      func(e map[string]any) { e["event_id"] = "1" },
			"no time":        func(e map[string]any) { e["occurred_at"] = "yesterday" },
			"no tenant":      func(e map[string]any) { delete(e["payload"].(map[string]any), "org_id") },
			"more payload":   func(e map[string]any) { e["payload"].(map[string]any)["password"] = "x" },
			"another status": func(e map[string]any) { e["payload"].(map[string]any)["status"] = "other" },
		} {
			if _, has := payload["status"]; name == "another status" && d.Status == "" && has {
				continue // announced in any phase
			}
			e := good()
			spoil(e)
			require.Error(t, compiled.Validate(e), "%s: %s", d.Type, name)
		}
	}
}

func compile(t *testing.T, typ string, files map[string][]byte) *jsonschema.Schema {
	t.Helper()
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(files["schemas/"+typ+".json"]))
	require.NoError(t, err)
	require.NoError(t, c.AddResource(typ, doc))
	s, err := c.Compile(typ)
	require.NoError(t, err)
	return s
}

func TestAsyncAPIReferencesResolve(t *testing.T) {
	files, err := event.Published()
	require.NoError(t, err)
	var doc map[string]any
	require.NoError(t, yaml.Unmarshal(files["asyncapi.yaml"], &doc))
	var refs []string
	var walk func(any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if to, ok := v["$ref"].(string); ok {
				refs = append(refs, to)
			}
			for _, below := range v {
				walk(below)
			}
		case []any:
			for _, below := range v {
				walk(below)
			}
		}
	}
	walk(doc)
	require.Len(t, refs, 3*len(event.Definitions())+1)
	for _, to := range refs {
		if file, ok := strings.CutPrefix(to, "./"); ok {
			require.Contains(t, files, file)
			continue
		}
		at := any(doc)
		for _, name := range strings.Split(strings.TrimPrefix(to, "#/"), "/") {
			at = at.(map[string]any)[name]
			require.NotNil(t, at, to)
		}
	}
}

func TestIDIsStable(t *testing.T) {
	key := schema.InstanceKey("physics", "lhc", "train")
	a := event.ID(event.InstanceRunning, key, "abc", 1)
	require.Equal(t, a, event.ID(event.InstanceRunning, key, "abc", 1))
	require.Len(t, a, 32)
	for i, other := range []string{
		event.ID(event.InstanceFailed, key, "abc", 1),
		event.ID(event.InstanceRunning, schema.InstanceKey("physics", "lhc", "other"), "abc", 1),
		event.ID(event.InstanceRunning, key, "abd", 1), event.ID(event.InstanceRunning, key, "abc", 2),
	} {
		require.NotEqual(t, a, other, fmt.Sprint(i))
	}
}
