package load

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"cuelang.org/go/cue"
	"cuelang.org/go/cue/ast"
	"cuelang.org/go/cue/build"
	"cuelang.org/go/cue/cuecontext"
	"cuelang.org/go/cue/errors"
	"cuelang.org/go/cue/parser"

	berthcue "berth/schema/cue"
)

// judge checks values against the definitions. It holds one CUE context and is used by
// one goroutine at a time: contexts are not worth sharing. It keeps no judged value (a
// retained one costs 70 KiB; BuildFile would retain all).
type judge struct {
	ctx    *cue.Context
	defs   map[string]definition
	shapes map[string]*shape // of another judge of the same definitions; nil: the first judge
}

// definition is one closed CUE definition, and its shape for messages.
type definition struct {
	value cue.Value
	shape *shape
	plain bool // the shape expresses the value completely
}

// Names of definitions of a backend.
func configDef(backend string) string     { return backend + "#Config" }
func parametersDef(backend string) string { return backend + "#Parameters" }

// newJudge compiles the core's definitions and those of the backends.
func newJudge(backends map[string]string) (*judge, error) { return newJudgeLike(backends, nil) }

// newJudgeLike is newJudge with the shapes of another judge, which take most of its time.
func newJudgeLike(backends map[string]string, shapes map[string]*shape) (*judge, error) {
	sources, err := berthcue.Sources()
	if err != nil {
		return nil, err
	}
	j := &judge{ctx: cuecontext.New(), defs: map[string]definition{}, shapes: shapes}
	core, simple, err := compile(j.ctx, sources)
	if err != nil {
		return nil, fmt.Errorf("the definitions of the estate: %w", err)
	}
	said := map[string]string{}
	if err := says(core, said); err != nil {
		return nil, err
	}
	for _, kind := range kinds() {
		if err := j.define(kind, core, "#"+kind, said, simple); err != nil {
			return nil, fmt.Errorf("the definitions of the estate: %w", err)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(backends)) {
		if err := j.defineBackend(name, backends[name], maps.Clone(said)); err != nil {
			return nil, fmt.Errorf("backend %s: %w", name, err)
		}
	}
	return j, nil
}

// defineBackend compiles the definitions of a backend. said explains patterns; its own are added.
func (j *judge) defineBackend(name, source string, said map[string]string) error {
	v, simple, err := compile(j.ctx, map[string][]byte{name + ".cue": []byte(source)})
	if err != nil {
		return err
	}
	if err := says(v, said); err != nil {
		return err
	}
	for def, at := range map[string]string{configDef(name): "#Config", parametersDef(name): "#Parameters"} {
		if err := j.define(def, v, at, said, simple); err != nil {
			return err
		}
	}
	return nil
}

func (j *judge) define(name string, in cue.Value, at string, said map[string]string, simple bool) error {
	v := in.LookupPath(cue.ParsePath(at))
	if err := v.Err(); err != nil {
		return fmt.Errorf("no definition %s: %w", at, err)
	}
	h := shaper{empty: j.ctx.NewList(), said: said}
	sh := j.shapes[name]
	if sh == nil {
		sh = h.shape(v)
	}
	j.defs[name] = definition{value: v, shape: sh, plain: simple && sh.exact()}
	if h.err != nil {
		return fmt.Errorf("%s: %w", at, h.err)
	}
	return nil
}

// compile builds one package of the given files, and reports whether they are plain.
func compile(ctx *cue.Context, sources map[string][]byte) (v cue.Value, simple bool, err error) {
	simple = true
	inst := build.NewContext().NewInstance("", nil)
	for _, name := range slices.Sorted(maps.Keys(sources)) {
		f, err := parser.ParseFile(name, sources[name], parser.ParseComments)
		if err != nil {
			return cue.Value{}, false, err
		}
		// Imports would read files of this machine; definitions have none.
		for _, d := range f.Decls {
			if _, ok := d.(*ast.ImportDecl); ok {
				return cue.Value{}, false, fmt.Errorf("%s: definitions import nothing", name)
			}
		}
		simple = simple && static(f)
		if err := inst.AddSyntax(f); err != nil {
			return cue.Value{}, false, err
		}
	}
	v = ctx.BuildInstance(inst)
	return v, simple, v.Err()
}

// says adds the explanations of patterns in v's #Says.
func says(v cue.Value, to map[string]string) error {
	s := v.LookupPath(cue.ParsePath("#Says"))
	if !s.Exists() {
		return nil
	}
	it, err := s.Fields()
	if err != nil {
		return fmt.Errorf("#Says: %w", err)
	}
	for it.Next() {
		text, err := it.Value().String()
		if err != nil {
			return fmt.Errorf("#Says: %w", err)
		}
		to[it.Selector().Unquoted()] = text
	}
	return nil
}

// judge checks value against a definition. It returns the value with its defaults as
// JSON, or its problems.
func (j *judge) judge(def string, value any) ([]byte, []problem) {
	d, ok := j.defs[def]
	if !ok {
		return nil, []problem{{code: "schema.value", message: "there is no definition of " + def}}
	}
	filled, problems, rules := d.shape.check(value)
	switch {
	case len(problems) > MaxFindings: // CUE's time grows with the square of their number
		return nil, problems
	case len(problems) > 0 || !d.plain:
		return j.ask(d, value, problems, rules)
	case len(rules) > 0:
		return nil, rules
	}
	data, err := encode(filled)
	if err != nil {
		return nil, unevaluated(err)
	}
	return data, nil
}

// ask checks a value by CUE, which decides. problems and rules are those of its shape.
func (j *judge) ask(d definition, value any, problems, rules []problem) ([]byte, []problem) {
	v := d.value.Unify(j.ctx.Encode(value))
	err := v.Validate(cue.Concrete(true), cue.Final())
	switch {
	case err != nil && len(problems) > 0:
		return nil, problems
	case err != nil:
		return nil, refusals(err)
	case len(rules) > 0:
		return nil, rules
	}
	data, err := v.MarshalJSON()
	if err != nil {
		return nil, unevaluated(err)
	}
	return data, nil
}

func unevaluated(err error) []problem {
	return []problem{{code: "schema.value", message: "cannot be evaluated: " + err.Error()}}
}

// refusals returns CUE's errors about a value as they are, one for each field: the shape
// cannot explain them.
func refusals(err error) (problems []problem) {
	for _, e := range errors.Errors(err) {
		path := fieldPath(e.Path())
		if slices.ContainsFunc(problems, func(p problem) bool { return p.path == path }) {
			continue
		}
		format, args := e.Msg()
		problems = append(problems, problem{path: path, code: "schema.value", message: fmt.Sprintf(format, args...)})
	}
	return problems
}

// fieldPath returns the path of a field from CUE's selectors.
func fieldPath(selectors []string) (path string) {
	for _, sel := range selectors {
		if key, err := strconv.Unquote(sel); err == nil {
			path = child(path, key)
		} else if i, err := strconv.Atoi(sel); err == nil {
			path = Item(path, i)
		} else if !strings.HasPrefix(sel, "#") || path != "" { // the definition's own name
			path = child(path, sel)
		}
	}
	return path
}

// encode returns JSON as CUE writes it.
func encode(value any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(value)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}
