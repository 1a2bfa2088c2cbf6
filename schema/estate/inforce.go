package estate

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"berth/schema"
	"berth/schema/load"
)

// ErrEmpty: the new tree declares nothing, and the one in force declares documents. That
// is a mistake or an attack, and no request to delete everything.
var ErrEmpty = errors.New("the estate is empty")

// ErrInForce: the version in force has become invalid, and the new tree does not repair
// it. A person must repair it; until then nothing is deleted.
var ErrInForce = errors.New("the version in force does not load")

// Check refuses valid documents that may not come into force. Its argument is the estate
// that would be in force. Each diagnostic of severity error holds its File, if that
// changed. A Check must be pure.
type Check func(*schema.Desired) []schema.Diagnostic

// Veto keeps a changed path at its version in force. The new version is not judged.
// Its fields are those of Held.
type Veto struct {
	Reason       schema.HeldReason
	Message, Ack string
}

// Force is the part of a new tree that comes into force.
type Force struct {
	Main     *Result             // the whole new tree, with its findings
	Result   *Result             // the estate in force; it has no errors
	Snapshot schema.Snapshot     // Result as a tree
	Replace  map[string]string   // path → blob in force instead of main's, or for a whole part its Hash; "": none
	Held     []schema.Held       // with reasons, sorted by file
	Refused  []schema.Diagnostic // what the checks found in files of Held that they refused, sorted by file

	rounds int // number of rounds needed
}

// InForce decides which documents of main come into force over those of previous, the
// tree in force until now. main was read with LoadOver over previous. An invalid document
// holds only itself and the documents that need it: an invalid file keeps its version in previous, and
// a document that one in force still needs is not deleted. A valid main comes into
// force unchanged. The decision depends on the two trees alone, and on which parts of
// them can be read: a part that cannot be read keeps its version in force as a whole;
// if that is the platform, the error is ErrUnreadable.
//
// Among files that contradict each other, the changed one yields: new files are held,
// changed ones keep their version in force. Only if an unchanged file is still
// invalid, the changes it depends on are held. Operations and contributions are the
// exception: they yield to such changes. So no tenant's document decides what is in
// force for another tenant, except that of two new claims to one Unix user the first
// by path has it.
//
// vetoes are paths that keep their version in force; documents that need their new
// version wait with them.
func (l *Loader) InForce(ctx context.Context, main, previous *Result, vetoes map[string]Veto, checks ...Check) (*Force, error) {
	f := forcing{loader: l, checks: checks, main: main, before: previous, put: map[string]*schema.File{},
		held: map[string]schema.Held{}, denied: map[string][]schema.Diagnostic{}, turns: map[string]turns{}}
	if slices.Contains(main.Unreadable, "platform") {
		return nil, fmt.Errorf("the new tree: %w: platform: %s", ErrUnreadable, main.reason("platform").Message)
	}
	if len(previous.Unreadable) > 0 {
		part := previous.Unreadable[0]
		return nil, fmt.Errorf("the tree in force: %w: %s: %s", ErrUnreadable, part, previous.reason(part).Message)
	}
	if main.Len() == 0 && previous.Len() > 0 {
		return nil, ErrEmpty
	}
	tree := main.snapshot
	if len(main.Unreadable) > 0 {
		var err error
		if tree, err = f.keep(ctx, tree, previous.snapshot); err != nil {
			return nil, err
		}
	}
	if err := f.compare(ctx, tree, previous.snapshot); err != nil {
		return nil, err
	}
	for _, path := range slices.Sorted(maps.Keys(vetoes)) {
		if f.loose(path) {
			f.back(path, vetoes[path])
		}
	}
	return f.settle(ctx, tree)
}

// forcing is the search for a valid tree: main, with more and more paths reverted to the
// version in force. Each round reverts at least one path, so it ends.
type forcing struct {
	loader *Loader
	checks []Check
	main   *Result
	before *Result
	was    map[string]*schema.File // changed paths in the version in force; nil: missing
	put    map[string]*schema.File // reverted paths
	held   map[string]schema.Held
	denied map[string][]schema.Diagnostic // findings of paths that went back as a check refused them
	kept   map[string]string              // unreadable parts of main, kept as in force, with their hashes; "": missing
	turns  map[string]turns               // by part
}

// turns counts the rounds that reverted paths of a part, and those paths.
type turns struct{ count, put int }

// keep returns main with its unreadable parts as in previous.
func (f *forcing) keep(ctx context.Context, main, previous schema.Snapshot) (schema.Snapshot, error) {
	f.kept = map[string]string{}
	for _, name := range f.main.Unreadable {
		f.kept[name] = ""
	}
	was, err := previous.Parts(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range was {
		if _, ok := f.kept[p.Name]; ok {
			f.kept[p.Name] = p.Hash
		}
	}
	for _, name := range f.main.Unreadable {
		var key schema.Key
		if tenant, ok := strings.CutPrefix(name, "tenants/"); ok && schema.ValidName(tenant) {
			key = schema.Key{Kind: schema.KindTenant, Name: tenant}
		}
		f.held[name] = schema.Held{Key: key, File: name, Reason: schema.HeldUnreadable, Message: f.main.reason(name).Message}
	}
	return patchwork{base: main, from: previous, parts: f.kept}, nil
}

// compare finds the paths in which main differs from previous.
func (f *forcing) compare(ctx context.Context, main, previous schema.Snapshot) error {
	f.was = map[string]*schema.File{}
	return f.loader.compare(ctx, previous, main, func(_ schema.Part, err error) error { return err }, func(was, is *schema.File) {
		if was == nil {
			f.was[is.Path] = nil
		} else {
			f.was[was.Path] = was
		}
	})
}

func (f *forcing) settle(ctx context.Context, main schema.Snapshot) (*Force, error) {
	for rounds := 1; ; rounds++ {
		tree, r, err := f.load(ctx, main)
		if err != nil {
			return nil, err
		}
		if f.crowded(r) {
			continue
		}
		refused := f.refused(r)
		if len(r.Needs) == 0 && len(refused) == 0 && !schema.HasErrors(r.Diagnostics) {
			force := f.done(r, tree)
			force.rounds = rounds
			return force, nil
		}
		if !f.round(r, refused) {
			return nil, fmt.Errorf("%w: %s", ErrInForce, firstError(r))
		}
		f.cut()
	}
}

// load reads main with the reverted paths.
func (f *forcing) load(ctx context.Context, main schema.Snapshot) (schema.Snapshot, *Result, error) {
	if len(f.put)+len(f.kept) == 0 {
		return main, f.main, nil
	}
	tree := main
	if len(f.put) > 0 {
		o, err := newOverlay(ctx, main, f.before.snapshot, f.put)
		if err != nil {
			return nil, nil, err
		}
		tree = o
	}
	r, err := f.loader.load(ctx, tree, f.before)
	return tree, r, err
}

// crowded reverts all changes of parts above their bound, and reports whether there were
// any. Main's files together with held ones may exceed the bound of a part, although
// neither tree does.
func (f *forcing) crowded(r *Result) (any bool) {
	for _, part := range r.Unreadable {
		if r.reason(part).Code != codeTooLarge {
			continue
		}
		any = f.backAll(part, "with what is held of "+part+" it would hold too much: all that changed there waits") || any
	}
	return any
}

// maxTurns limits the rounds that revert paths of one tenant.
const maxTurns = 8

// cut reverts all remaining changes of tenants with maxTurns rounds. Every tenant pays
// for a round, and a chain of documents that conflict one after another needs one round
// each.
func (f *forcing) cut() {
	put := map[string]int{}
	for path, file := range f.put {
		put[partOf(path).Name]++
		if file == nil { // a reverted file may still be removed
			put[partOf(path).Name]++
		}
	}
	for _, part := range sortedKeys(put) {
		t := f.turns[part]
		if t.put == put[part] || !strings.HasPrefix(part, "tenants/") {
			continue
		}
		if t.count++; t.count == maxTurns {
			f.backAll(part, fmt.Sprintf("%d times something of %s went back and more of it could not stand: all that changed there waits",
				maxTurns, part))
		}
		t.put = put[part]
		f.turns[part] = t
	}
}

// refused returns the findings of the checks in each changed file that they refuse. Files in force
// stay, even if the rules changed.
func (f *forcing) refused(r *Result) map[string][]schema.Diagnostic {
	found := map[string][]schema.Diagnostic{}
	for _, check := range f.checks {
		for _, d := range check(r.Desired) {
			if f.loose(d.File) {
				found[d.File] = append(found[d.File], d)
			}
		}
	}
	maps.DeleteFunc(found, func(_ string, all []schema.Diagnostic) bool { return !schema.HasErrors(all) })
	return found
}

// reasonOf returns why a file is held that checks refused.
func reasonOf(found []schema.Diagnostic) schema.HeldReason {
	for _, d := range found {
		if d.Severity == schema.SeverityError && d.Code != schema.CodeUsedUp {
			return schema.HeldDenied
		}
	}
	return schema.HeldQuota
}

// firstRefusal returns the message of the first error.
func firstRefusal(found []schema.Diagnostic) string {
	i := slices.IndexFunc(found, func(d schema.Diagnostic) bool { return d.Severity == schema.SeverityError })
	return found[i].Message
}

// loose reports whether a changed path is not reverted yet.
func (f *forcing) loose(path string) bool {
	_, changed := f.was[path]
	_, back := f.put[path]
	return changed && !back
}

// gone reports whether a path of main does not come into force.
func (f *forcing) gone(path string) bool {
	_, back := f.put[path]
	_, kept := f.kept[partOf(path).Name]
	return back || kept
}

// back reverts a path to the version in force.
func (f *forcing) back(path string, why Veto) {
	f.put[path] = f.was[path]
	f.hold(path, why)
}

// backAll reverts all remaining changes of a part, and reports whether there were any.
func (f *forcing) backAll(part, message string) (any bool) {
	for path := range f.was {
		if partOf(path).Name == part && f.loose(path) {
			f.back(path, Veto{Reason: schema.HeldNeeds, Message: message})
			any = true
		}
	}
	return any
}

// drop removes a path that did not change, or was reverted.
func (f *forcing) drop(path string, why Veto) {
	f.put[path] = nil
	f.hold(path, why)
}

// yields reports whether a file in force gives way if a document that it needs changes:
// an operation, which is a single request, or an offer of nodes. Neither may hold a
// change to an instance or to the platform's nodes.
func (f *forcing) yields(path string) bool {
	if file, ok := f.put[path]; ok && file == nil {
		return false // already removed
	}
	key, _, _ := load.Locate(path)
	return key.Kind == schema.KindMemberOperation || key.Kind == schema.KindContribution
}

func (f *forcing) hold(path string, why Veto) {
	key := f.main.Key(path)
	if key.IsZero() {
		key, _, _ = load.Locate(path)
	}
	f.held[path] = schema.Held{Key: key, File: path, Reason: why.Reason, Message: why.Message, Ack: why.Ack}
}

// action reverts one path, for a reason of Held.
type action struct {
	path    string
	reason  schema.HeldReason
	message string
}

// The classes of a round, in the order in which they are reverted. A later class waits,
// because an earlier one may resolve it. Of the refused documents, those by which other
// documents are judged are reverted first, so that they refuse and admit nothing.
const (
	invalidFiles    = iota // changed files that are invalid by themselves
	newFiles               // new files that contradict others
	changedFiles           // changed files that contradict others
	refusedPlatform        // changed files of the platform that a check refuses
	refusedTenant          // those of a tenant
	refusedProject         // those of a project
	refusedUnits           // instances, shared runtimes and what belongs to them
	refusedPages           // files that are no documents, and that documents name
	neededFiles            // changes that unchanged files depend on
	yieldingFiles          // unchanged files that yield; they are removed
	numberOfClasses
)

// firstErrors returns the first error of each file.
func firstErrors(r *Result) map[string]schema.Diagnostic {
	first := map[string]schema.Diagnostic{}
	for _, d := range r.Diagnostics {
		if !hasEntry(first, d.File) && d.Severity == schema.SeverityError {
			first[d.File] = d
		}
	}
	return first
}

// classes returns the actions of a round by class.
func (f *forcing) classes(r *Result, refused map[string][]schema.Diagnostic) (classes [numberOfClasses][]action) {
	first := firstErrors(r)
	for _, path := range sortedKeys(first) {
		if !r.Waits(path) && f.loose(path) {
			classes[invalidFiles] = append(classes[invalidFiles], action{path, schema.HeldInvalid, first[path].Message})
		}
	}
	for _, path := range sortedKeys(r.Needs) {
		for _, a := range f.waiting(r, path, first) {
			class := f.class(a.path)
			switch {
			case f.yields(path) && !f.loose(path):
				class = yieldingFiles
			case a.path != path:
				class = neededFiles
			}
			classes[class] = append(classes[class], a)
		}
	}
	for _, path := range sortedKeys(refused) {
		class := refusedClass(path)
		classes[class] = append(classes[class], action{path, reasonOf(refused[path]), firstRefusal(refused[path])})
	}
	return classes
}

// round reverts the files of the first class that has any, and reports whether there
// were any.
func (f *forcing) round(r *Result, refused map[string][]schema.Diagnostic) bool {
	for _, actions := range f.classes(r, refused) {
		for _, a := range actions {
			switch {
			case f.loose(a.path):
				f.back(a.path, Veto{Reason: a.reason, Message: a.message})
				if a.reason == schema.HeldDenied || a.reason == schema.HeldQuota {
					f.denied[a.path] = refused[a.path]
				}
			case f.yields(a.path):
				f.drop(a.path, Veto{Reason: a.reason, Message: a.message})
			}
		}
		if len(actions) > 0 {
			return true
		}
	}
	return false
}

// class returns the class of a changed file that contradicts others.
func (f *forcing) class(path string) int {
	if f.was[path] == nil {
		return newFiles
	}
	return changedFiles
}

// refusedClass returns the class of a file that a check refuses.
func refusedClass(path string) int {
	key, _, _ := load.Locate(path)
	switch key.Kind {
	case "":
		return refusedPages
	case schema.KindInstance, schema.KindMemberOperation, schema.KindSharedRuntime, schema.KindAttachment, schema.KindContribution:
		return refusedUnits
	}
	switch {
	case !strings.HasPrefix(path, tenantsDir):
		return refusedPlatform
	case key.Project == "":
		return refusedTenant
	}
	return refusedProject
}

// waiting lists the actions for a path that other files keep out of Desired: on the path
// itself if it changed or yields, otherwise on the changes it depends on.
func (f *forcing) waiting(r *Result, path string, first map[string]schema.Diagnostic) (out []action) {
	needs := strings.Join(namedFor(path, r.Needs[path]...), ", ")
	switch d, found := first[path]; {
	case f.loose(path) && found && !slices.ContainsFunc(r.Needs[path], f.gone):
		return []action{{path, schema.HeldInvalid, d.Message}}
	case f.loose(path):
		return []action{{path, schema.HeldNeeds, "needs " + needs + ", which does not come into force"}}
	case f.yields(path):
		return []action{{path, schema.HeldNeeds, "needs " + needs + ", which has changed"}}
	}
	for _, need := range slices.Concat(r.Needs[path], f.before.uses(path)) {
		switch {
		case !f.loose(need):
		case f.was[need] != nil:
			out = append(out, action{need, schema.HeldNeeds, namedFor(need, path)[0] + " is in force and needs it unchanged"})
		default:
			out = append(out, action{need, schema.HeldNeeds, namedFor(need, path)[0] + " is in force and conflicts with it"})
		}
	}
	return out
}

// namedFor returns names of files for the author of path. It hides files of other
// tenants.
func namedFor(path string, files ...string) (names []string) {
	own := partOf(path).Name
	for _, file := range files {
		if part := partOf(file).Name; part != own && strings.HasPrefix(part, tenantsDir) && strings.HasPrefix(own, tenantsDir) {
			file = "a document of another tenant"
		}
		if !slices.Contains(names, file) {
			names = append(names, file)
		}
	}
	return names
}

func firstError(r *Result) string {
	for _, d := range r.Diagnostics {
		if d.Severity == schema.SeverityError {
			return d.String()
		}
	}
	return "no finding tells why"
}

func (f *forcing) done(r *Result, tree schema.Snapshot) *Force {
	force := &Force{Main: f.main, Result: r, Snapshot: tree, Replace: map[string]string{}}
	maps.Copy(force.Replace, f.kept)
	for path, file := range f.put {
		force.Replace[path] = ""
		if file != nil {
			force.Replace[path] = file.Blob
		}
	}
	for _, path := range slices.Sorted(maps.Keys(f.held)) {
		force.Held = append(force.Held, f.held[path])
		force.Refused = append(force.Refused, f.denied[path]...)
	}
	return force
}
