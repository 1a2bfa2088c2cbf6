package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"cuelang.org/go/cue"

	"berth/schema"
)

// JSONSchema returns the definition of a kind of document as JSON Schema
// (draft 7) for editors; of every kind, chosen by the document's kind field, if
// kind is "". It says what a document looks like: what documents say of each
// other, and of themselves beyond their structure, only Load knows.
//
// The runtime of an instance's config is named in another document, its version. With versions, by app and name, config is that runtime's;
// without them, the fields of all runtimes are offered and none is refused.
func JSONSchema(backends map[string]string, kind schema.Kind, versions map[string]map[string]*schema.AppVersion) ([]byte, error) {
	if kind != "" && !slices.Contains(kinds(), string(kind)) {
		return nil, fmt.Errorf("there is no kind %s, there is %s", kind, strings.Join(kinds(), ", "))
	}
	j, err := newJudge(backends)
	if err != nil {
		return nil, err
	}
	var root object
	if kind == "" {
		root = j.everyKind(backends, versions)
	} else {
		root = j.kindSchema(kind, backends, versions)
		root["title"] = string(kind)
	}
	root["$schema"] = "http://json-schema.org/draft-07/schema#"
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(root); err != nil {
		return nil, fmt.Errorf("JSON Schema of %s: %w", kind, err)
	}
	return b.Bytes(), nil
}

// object is one JSON Schema.
type object map[string]any

// everyKind selects by the field kind, so that an editor shows only the errors of that
// kind.
func (j *judge) everyKind(backends map[string]string, versions map[string]map[string]*schema.AppVersion) object {
	var choices []object
	definitions, names := object{}, kinds()
	for _, kind := range names {
		definitions[kind] = j.kindSchema(schema.Kind(kind), backends, versions)
		choices = append(choices, object{
			"if":   object{"properties": object{"kind": object{"const": kind}}, "required": []string{"kind"}},
			"then": object{"$ref": "#/definitions/" + kind},
		})
	}
	return object{
		"title": "A document of an estate",
		"type":  "object",
		"properties": object{
			"apiVersion": object{"const": schema.APIVersion},
			"kind":       object{"enum": names},
		},
		"required":    []string{"apiVersion", "kind"},
		"allOf":       choices,
		"definitions": definitions,
	}
}

// kindSchema returns the schema of one kind, with the definitions of the runtimes.
func (j *judge) kindSchema(kind schema.Kind, backends map[string]string, versions map[string]map[string]*schema.AppVersion) object {
	root := jsonSchema(j.defs[string(kind)].shape)
	spec, _ := root["properties"].(object)["spec"].(object)
	fields, _ := spec["properties"].(object)
	switch kind {
	case schema.KindInstance, schema.KindSharedRuntime:
		var configs []object
		for _, name := range slices.Sorted(maps.Keys(backends)) {
			config := jsonSchema(j.defs[configDef(name)].shape)
			config["title"] = name
			configs = append(configs, config)
		}
		fields["config"] = object{"description": "Configuration of the runtime", "anyOf": append(configs, object{"type": "object"})}
		if choices := j.configs(backends, versions); len(choices) > 0 {
			spec["allOf"] = choices
		}
	case schema.KindAppVersion:
		var choices []object
		for _, name := range slices.Sorted(maps.Keys(backends)) {
			choices = append(choices, object{
				"if": object{"properties": object{"runtime_backend": object{"const": name}}, "required": []string{"runtime_backend"}},
				"then": object{"properties": object{"manifest": object{"properties": object{
					"parameters": jsonSchema(j.defs[parametersDef(name)].shape),
				}}}},
			})
		}
		if len(choices) > 0 {
			spec["allOf"] = choices
		}
	}
	return root
}

// configs selects the config of an instance by its app and version.
func (j *judge) configs(backends map[string]string, versions map[string]map[string]*schema.AppVersion) (choices []object) {
	for _, app := range sortedNames(versions) {
		for _, name := range sortedNames(versions[app]) {
			backend := versions[app][name].Spec.RuntimeBackend
			if !hasKey(backends, backend) {
				continue
			}
			choices = append(choices, object{
				"if": object{
					"properties": object{"app": object{"const": app}, "version": object{"const": name}},
					"required":   []string{"app", "version"},
				},
				"then": object{"properties": object{"config": jsonSchema(j.defs[configDef(backend)].shape)}},
			})
		}
	}
	return choices
}

// jsonSchema returns a shape as JSON Schema.
func jsonSchema(s *shape) object {
	o := object{}
	if s.fallback != "" {
		o["default"] = json.RawMessage(s.fallback)
	}
	switch {
	case len(s.enum) == 1:
		o["const"] = json.RawMessage(s.enum[0])
	case len(s.enum) > 1:
		var values []json.RawMessage
		for _, v := range s.enum {
			values = append(values, json.RawMessage(v))
		}
		o["enum"] = values
	}
	types := map[cue.Kind]string{cue.StructKind: "object", cue.ListKind: "array", cue.StringKind: "string", cue.BoolKind: "boolean",
		cue.IntKind: "integer", cue.NumberKind: "number", cue.FloatKind: "number"}
	if name, ok := types[s.kind]; ok {
		o["type"] = name
	}
	switch s.kind {
	case cue.StructKind:
		s.mapping(o)
	case cue.ListKind:
		if s.element != nil {
			o["items"] = jsonSchema(s.element)
		}
		if s.nonEmpty {
			o["minItems"] = 1
		}
	}
	if len(s.either) > 0 {
		var each []any
		for _, one := range s.either {
			each = append(each, jsonSchema(one))
		}
		o["anyOf"] = each
	}
	if doc := s.jsonRules(o); doc != "" {
		o["description"] = doc
	}
	return o
}

// jsonRules adds the rules of a scalar. It returns the comments of the shape with the explanations of its patterns.
func (s *shape) jsonRules(o object) (doc string) {
	doc = s.doc
	bounds := map[cue.Op]string{cue.GreaterThanEqualOp: "minimum", cue.GreaterThanOp: "exclusiveMinimum", cue.LessThanEqualOp: "maximum",
		cue.LessThanOp: "exclusiveMaximum"}
	var not []object
	for _, r := range s.rules {
		switch r.op {
		case cue.RegexMatchOp:
			o["pattern"] = r.form.String()
			doc = said(doc, r.text)
		case cue.NotRegexMatchOp:
			not = append(not, object{"pattern": strings.TrimPrefix(r.form.String(), "(?i)")}) // the expressions of editors have no flags
		case cue.NotEqualOp:
			not = append(not, object{"const": r.num})
		default:
			o[bounds[r.op]] = r.num
		}
	}
	if len(not) > 0 {
		o["not"] = object{"anyOf": not}
	}
	return doc
}

// said joins a comment and a pattern's explanation.
func said(comment, explanation string) string {
	if comment == "" {
		return explanation
	}
	return comment + " (" + explanation + ")"
}

// mapping adds the fields of a mapping.
func (s *shape) mapping(o object) {
	var required []string
	properties := object{}
	for _, name := range slices.Sorted(maps.Keys(s.fields)) {
		properties[name] = jsonSchema(s.fields[name].shape)
		if s.fields[name].required {
			required = append(required, name)
		}
	}
	if len(properties) > 0 {
		o["properties"] = properties
	}
	if len(required) > 0 {
		o["required"] = required
	}
	if s.most > 0 {
		o["maxProperties"] = s.most
	}
	switch {
	case s.element != nil:
		o["additionalProperties"] = jsonSchema(s.element)
		var names []object
		for _, r := range s.keys {
			names = append(names, object{"pattern": r.form.String(), "description": r.text})
		}
		if len(names) == 1 {
			o["propertyNames"] = names[0]
		}
	case !s.open:
		o["additionalProperties"] = false
	}
}
