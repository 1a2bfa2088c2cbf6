package load

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"

	"berth/schema"
)

// Reader reads documents. It is safe for concurrent use.
type Reader struct {
	backends map[string]string
	releases map[string]schema.Releases
	checks   map[string]schema.ConfigCheck
	paths    *paths
	shapes   map[string]*shape // by definition
	judges   chan *judge       // idle judges; nil: not created yet
}

// NewReader makes a Reader. backends maps a runtime_backend to CUE source that
// defines #Config, the closed definition of an instance's spec.config, and
// #Parameters, that of a version's manifest.parameters. Defaults belong in
// #Parameters: a version's parameters lie under an instance's config, and a default
// in #Config would hide them. releases maps a runtime_backend to the versions that it
// knows; one without an entry allows every version. checks maps a runtime_backend to the
// check of a config beyond its definition. The error names the definition that does not
// compile.
func NewReader(backends map[string]string, releases map[string]schema.Releases, checks map[string]schema.ConfigCheck) (*Reader, error) {
	j, err := newJudge(backends)
	if err != nil {
		return nil, err
	}
	workers := min(runtime.GOMAXPROCS(0), 4)
	r := &Reader{backends: backends, releases: releases, checks: checks, paths: &paths{all: map[string]string{}},
		shapes: map[string]*shape{}, judges: make(chan *judge, workers)}
	for name, d := range j.defs {
		r.shapes[name] = d.shape
	}
	r.judges <- j
	for range workers - 1 {
		r.judges <- nil
	}
	return r, nil
}

// errBroke: the judge panicked. The file is refused, so that it does not stop the
// daemon after every restart.
var errBroke = errors.New("the reader failed on this file: please report it, and write it differently")

// withJudge runs f with an exclusive judge. A judge that panicked is dropped, and the
// error is errBroke.
func (r *Reader) withJudge(ctx context.Context, f func(*judge) error) (err error) {
	var j *judge
	select {
	case j = <-r.judges:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() {
		if recover() != nil {
			j, err = nil, errBroke
		}
		r.judges <- j
	}()
	if j == nil {
		if j, err = newJudgeLike(r.backends, r.shapes); err != nil {
			return err
		}
	}
	return f(j)
}

// Read reads the file f; nil if it is not part of the estate. read returns at most
// max bytes of it, and whether there are more. A file on which the reader panics is
// refused like any other invalid file and stops no other.
func (r *Reader) Read(
	ctx context.Context, f schema.File, read func(max int) (data []byte, more bool, err error),
) (doc *Document, err error) {
	key, doc, ignore := admit(f)
	if ignore {
		return nil, nil
	}
	if doc != nil && doc.Findings[0].Code != "path.misplaced" {
		return doc, nil
	}
	data, more, err := read(MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", f.Path, err)
	}
	if doc != nil {
		doc = misplaced(doc, data, more)
	} else if doc, err = r.parse(ctx, f, key, data, more); err != nil {
		return nil, err
	}
	doc.Size = len(data)
	return doc, nil
}

// parse reads the content of the file f at the path of key.
func (r *Reader) parse(ctx context.Context, f schema.File, key schema.Key, data []byte, more bool) (doc *Document, err error) {
	err = r.withJudge(ctx, func(j *judge) error {
		doc = (&documentParser{judge: j, paths: r.paths, releases: r.releases, checks: r.checks}).read(f, key, data, more)
		return nil
	})
	if errors.Is(err, errBroke) {
		return refused(f, key, "file.unreadable", "%v", err), nil
	}
	return doc, err
}

// Tenant reads only the tenant.yaml of a tenant; nil if it is invalid. A caller needs it
// to locate the tenant's documents before reading the estate.
func (r *Reader) Tenant(ctx context.Context, name string, data []byte) (*schema.Tenant, error) {
	key := schema.Key{Kind: schema.KindTenant, Name: name}
	path, err := key.Path()
	if err != nil {
		return nil, nil
	}
	more := len(data) > MaxBytes
	doc, err := r.parse(ctx, schema.File{Path: path, Mode: schema.ModePlain, Size: int64(len(data))}, key, data[:min(len(data), MaxBytes)],
		more)
	if err != nil {
		return nil, err
	}
	t, _ := doc.Decl.(*schema.Tenant)
	return t, nil
}

// Config is the runtime's judgement of the config of a document.
type Config struct {
	Findings []schema.Diagnostic
	Names    []schema.ConfigName // those that the document has; paths are of the document
}

// Config checks the config of doc, an instance or a shared runtime of version v.
func (r *Reader) Config(ctx context.Context, doc *Document, v *schema.AppVersion) (out Config, err error) {
	if doc.tree == nil {
		return out, nil
	}
	version := v.File + "@" + v.Blob
	if known, ok := doc.configs.Load(version); ok {
		return known.(Config), nil
	}
	config := doc.tree.value["spec"].(map[string]any)["config"]
	err = r.withJudge(ctx, func(j *judge) error {
		_, problems := j.judge(configDef(v.Spec.RuntimeBackend), config)
		if check := r.checks[v.Spec.RuntimeBackend]; len(problems) == 0 && check != nil {
			problems, out.Names = checkConfig(check, v, config)
		}
		for _, p := range problems {
			if p.code == "schema.unknown-field" && j.isParameter(v.Spec.RuntimeBackend, p.path) {
				p.message = fmt.Sprintf("an instance cannot set it, only its version (spec.manifest.parameters.%s in %s)", p.path, v.File)
			}
			p.path = join("spec.config", p.path)
			out.Findings = append(out.Findings, diagnose(doc.tree, doc.File.Path, p))
		}
		for i := range out.Names {
			out.Names[i].Path = join("spec.config", out.Names[i].Path)
		}
		out.Names = slices.DeleteFunc(out.Names, func(n schema.ConfigName) bool { return !doc.Has(n.Path) }) // of the version
		return nil
	})
	if errors.Is(err, errBroke) {
		out.Findings, err = []schema.Diagnostic{Found(doc, "spec.config", schema.SeverityError, "file.unreadable", err.Error())}, nil
	}
	if err == nil {
		doc.configs.Store(version, out)
	}
	return out, err
}

// isParameter reports whether a version of a backend has a parameter at a path.
func (j *judge) isParameter(backend, path string) bool {
	s := j.defs[parametersDef(backend)].shape
	return s != nil && hasKey(s.fields, path)
}

// checkConfig returns the problems and names that check finds in a config merged over the
// parameters of its version. Problems of the parameters alone are of the version's document.
func checkConfig(check schema.ConfigCheck, v *schema.AppVersion, config any) (problems []problem, names []schema.ConfigName) {
	var under map[string]any
	if err := json.Unmarshal(v.Spec.Manifest.Parameters, &under); err != nil {
		return nil, nil // the version is invalid
	}
	over, _ := config.(map[string]any)
	merged, err := json.Marshal(schema.MergeConfig(under, over))
	if err != nil {
		return unevaluated(err), nil
	}
	facts := check(v, merged)
	for _, p := range facts.Problems {
		problems = append(problems, problem{path: p.Path, code: "schema.rule", message: p.Message})
	}
	return problems, facts.Names
}
