package load

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
)

// estate is a Result under construction.
type estate struct {
	*Result
	out map[string]bool // files not in Desired
}

const codeUnreadable = "part.unreadable"

func (e *estate) unreadable(p schema.Part, err error) {
	e.Unreadable = append(e.Unreadable, p.Name)
	e.Diagnostics = append(e.Diagnostics, schema.Diagnostic{
		Severity: schema.SeverityError, Code: codeUnreadable, File: p.Name, Line: 1, Column: 1,
		Message: fmt.Sprintf("cannot be read, nothing below it is known: %v", err),
	})
}

// check judges the parts in each other's company and builds Desired.
func (e *estate) check(ctx context.Context, l *Loader, held claims) error {
	e.out = map[string]bool{}
	slices.SortFunc(e.parts, func(a, b *part) int { return strings.Compare(a.name, b.name) })
	refused := e.identities(held)
	cat := newCatalog(nil)
	verdicts := make([]*verdict, len(e.parts))
	for i, p := range e.parts {
		if p.name != "platform" {
			continue
		}
		v, err := p.verdict(print("", refused[p]), func() (*verdict, error) { return checkPlatform(ctx, l, p, refused[p]) })
		if err != nil {
			return err
		}
		verdicts[i], cat = v, v.catalog
	}
	for i, p := range e.parts {
		if verdicts[i] != nil {
			continue
		}
		v, err := p.verdict(print(cat.printFor(p.tenant), refused[p]), func() (*verdict, error) { return checkTenant(ctx, l, p, cat, refused[p]) })
		if err != nil {
			return err
		}
		verdicts[i] = v
	}
	for i, p := range e.parts {
		e.take(p, verdicts[i])
	}
	e.claimUsers(held)
	e.owners()
	e.attached()
	for _, p := range e.parts {
		switch {
		case p.name == "platform":
			e.Desired.Platform = p.buildPlatform(e.out)
		case p.tenant != "":
			if t := p.buildTenant(e.out); t != nil {
				e.Desired.Tenants[p.tenant] = t
			}
		}
	}
	e.Diagnostics = bounded(e.Diagnostics)
	for file, needs := range e.Needs {
		slices.Sort(needs)
		e.Needs[file] = slices.Compact(needs)
	}
	return nil
}

// take adds what is known of a part.
func (e *estate) take(p *part, v *verdict) {
	for _, doc := range p.docs {
		if !doc.key.IsZero() {
			e.Documents[doc.file.Path] = doc.key
		}
		e.Diagnostics = append(e.Diagnostics, doc.findings...)
		if !doc.valid() {
			e.out[doc.file.Path] = true
		}
	}
	e.Diagnostics = append(e.Diagnostics, v.findings...)
	for file := range v.out {
		e.out[file] = true
	}
	for file, needs := range v.needs {
		e.Needs[file] = slices.Clone(needs)
	}
	for file, uses := range v.uses {
		e.uses[file] = uses
	}
}

func (e *estate) refuse(f schema.Diagnostic, needs ...string) {
	e.Diagnostics = append(e.Diagnostics, f)
	if f.Severity == schema.SeverityError {
		e.out[f.File] = true
		e.Needs[f.File] = append(e.Needs[f.File], needs...)
	}
}

// found is a finding in a valid document.
func found(doc *document, path string, severity schema.Severity, code, message string) schema.Diagnostic {
	at := doc.header.At(path)
	return schema.Diagnostic{
		Severity: severity, Code: code, Message: subject(path) + message,
		File: at.File, Line: at.Line, Column: at.Column, Path: path,
	}
}

// verdict is what a part's documents came to in the company of a catalog.
type verdict struct {
	findings []schema.Diagnostic
	out      map[string]bool     // files that are not to be in Desired
	needs    map[string][]string // why
	uses     map[string][]string // files that a file needs of which others might have served as well
	catalog  *catalog            // of the platform's verdict
}

func newVerdict() *verdict {
	return &verdict{out: map[string]bool{}, needs: map[string][]string{}, uses: map[string][]string{}}
}

// refuse records a finding that holds its document.
func (v *verdict) refuse(doc *document, path, code, message string, needs ...string) {
	v.findings = append(v.findings, found(doc, path, schema.SeverityError, code, message))
	v.without(doc, needs...)
}

// without records that a document cannot stand, as something it needs cannot;
// the finding about that stands elsewhere.
func (v *verdict) without(doc *document, needs ...string) {
	v.out[doc.file.Path] = true
	v.needs[doc.file.Path] = append(v.needs[doc.file.Path], needs...)
}

// verdict is computed once for each catalog the part meets.
func (p *part) verdict(print string, compute func() (*verdict, error)) (*verdict, error) {
	const most = 4 // catalogs in use at once: main, in force, a pull request or two
	p.mu.Lock()
	v, ok := p.checked[print]
	p.mu.Unlock()
	if ok {
		return v, nil
	}
	v, err := compute()
	if err != nil {
		return nil, err
	}
	v.findings = bounded(v.findings)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.checked) >= most {
		clear(p.checked)
	}
	p.checked[print] = v
	return v, nil
}

// sortedNames lists a map's keys.
func sortedNames[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
