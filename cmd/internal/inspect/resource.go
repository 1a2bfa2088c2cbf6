package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/yaml"

	"berth/cmd/internal/cli"
	"berth/cmd/internal/localestate"
	"berth/reconciler"
	"berth/reconciler/gitrepo"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/estate"
)

// Resource is one document of the estate with what Berth recorded of it.
type Resource struct {
	Key      schema.Key      `json:"key"`
	Name     string          `json:"name"` // with tenant, project and parent
	File     string          `json:"file,omitempty"`
	Invalid  bool            `json:"invalid,omitempty"`  // the document is not YAML
	Document json.RawMessage `json:"document,omitempty"` // absent: it was deleted, and the resource is not yet
	Status   *ResourceStatus `json:"status,omitempty"`   // absent: nothing is recorded
	Held     []schema.Held   `json:"held,omitempty"`     // changes of it on main that are not in force
	UsedBy   []string        `json:"used_by,omitempty"`  // of a node: the units with a member on it
	GPUs     []gpuUse        `json:"gpus,omitempty"`     // of a node

	// SharedRuntime is what an instance uses instead of members of its own.
	SharedRuntime *sharedUse `json:"shared_runtime,omitempty"`

	text string    // of the document
	now  time.Time // when it was read
}

// sharedUse is a shared runtime as one project sees it: without the members and attachments of
// others.
type sharedUse struct {
	Name       string                 `json:"name"`
	Phase      string                 `json:"phase,omitempty"`      // absent: nothing is recorded
	Attachment *plan.AttachmentStatus `json:"attachment,omitempty"` // of the instance's project
}

// List is the resources of a kind; its JSON is a contract.
type List struct {
	Format string      `json:"format"` // berth.get/v1
	Kind   schema.Kind `json:"kind"`
	Source string      `json:"source"` // the estate that was read
	Items  []*Resource `json:"items"`
}

// Description is one resource with its last events; its JSON is a contract.
type Description struct {
	Format string       `json:"format"` // berth.describe/v1
	Source string       `json:"source"`
	Item   *Resource    `json:"item"`
	Events []plan.Event `json:"events"` // oldest first
}

// Estate is an estate in force, or in a directory, with its status.
type Estate struct {
	source string // for people
	snap   schema.Snapshot
	files  map[schema.Key]schema.File
	status reconciler.StatusTree
	repo   *Repository // nil: none
}

// Estate opens the estate, and calls do with it. The repository may have no
// berth/status, and the working directory may be in no repository.
func (s Source) Estate(ctx context.Context, do func(*Estate) error) error {
	e := &Estate{}
	var err error
	e.repo, err = s.openAny(ctx)
	named := s != Source{}
	if err != nil && (named || !errors.Is(err, localestate.ErrNoEstate)) {
		return err
	}
	if e.repo != nil {
		defer e.repo.Close() // it was opened for reading
	}
	if err := e.choose(ctx, s); err != nil {
		return cli.Usage(err)
	}
	if e.files, err = documentFiles(ctx, e.snap, "platform", "tenants"); err != nil {
		return err
	}
	if e.repo != nil && e.repo.status != "" {
		if e.status, err = e.repo.ReadStatus(ctx, e.repo.status); err != nil {
			return fmt.Errorf("%s: %w", reconciler.BranchStatus, err)
		}
	}
	return do(e)
}

// choose chooses the tree to read: berth/in-force; else, of a bare repository, main;
// else the directory.
func (e *Estate) choose(ctx context.Context, s Source) (err error) {
	if e.repo == nil {
		return e.chooseDirectory(".")
	}
	if tip := e.repo.tips.InForce; tip != "" {
		return e.chooseCommit(ctx, reconciler.BranchInForce, tip)
	}
	at, err := s.directory()
	if err != nil {
		return err
	}
	place, err := gitrepo.Locate(at)
	switch tip := e.repo.tips.Main; {
	case err != nil:
		return err
	case place.WorkTree == "" && tip == "":
		return fmt.Errorf("%s has neither %s nor main; run the command in a clone of the estate", place.GitDir, reconciler.BranchInForce)
	case place.WorkTree == "":
		return e.chooseCommit(ctx, "main", tip)
	case at == ".":
		return e.chooseDirectory(".")
	}
	e.source = "the directory " + place.WorkTree
	e.snap, err = estate.Dir(place.WorkTree)
	return err
}

func (e *Estate) chooseCommit(ctx context.Context, branch, commit string) (err error) {
	e.source = fmt.Sprintf("%s at %s", branch, cli.ShortCommit(commit))
	e.snap, err = e.repo.Snapshot(ctx, commit)
	return err
}

// chooseDirectory chooses the estate around a directory.
func (e *Estate) chooseDirectory(dir string) error {
	root, err := localestate.Root(dir, "--repo DIR")
	if err != nil {
		return err
	}
	e.source = "the directory " + root
	e.snap, err = estate.Dir(root)
	return err
}

// List returns the resources of a kind, or the one of a name.
func (e *Estate) List(ctx context.Context, kind schema.Kind, name string) (*List, error) {
	l := &List{Format: "berth.get/v1", Kind: kind, Source: e.source}
	if name != "" {
		one, err := e.find(ctx, kind, name)
		l.Items = []*Resource{one}
		return l, err
	}
	var err error
	l.Items, err = e.list(ctx, kind)
	return l, err
}

// Desired returns the valid documents.
func (e *Estate) Desired(ctx context.Context) (*schema.Desired, error) {
	loader, err := localestate.NewLoader()
	if err != nil {
		return nil, err
	}
	loaded, err := loader.Load(ctx, e.snap)
	if err != nil {
		return nil, err
	}
	return loaded.Desired, nil
}

// Describe returns one resource.
func (e *Estate) Describe(ctx context.Context, kind schema.Kind, name string) (*Description, error) {
	one, err := e.find(ctx, kind, name)
	if err != nil {
		return nil, err
	}
	return &Description{Format: "berth.describe/v1", Source: e.source, Item: one, Events: e.lastEvents(ctx, one.Name)}, nil
}

// maxDocument bounds how much of a document is read, in bytes.
const maxDocument = 1 << 20

// documentFiles returns the files at paths of documents below some directories at the
// top, without reading them: documents in force are valid, and berth validate checks
// others.
func documentFiles(ctx context.Context, snap schema.Snapshot, tops ...string) (map[schema.Key]schema.File, error) {
	parts, err := snap.Parts(ctx)
	if err != nil {
		return nil, err
	}
	files := map[schema.Key]schema.File{}
	for _, p := range parts {
		if top, _, _ := strings.Cut(p.Name, "/"); !p.Dir || !slices.Contains(tops, top) {
			continue
		}
		of, err := snap.Files(ctx, p)
		if err != nil {
			return nil, err
		}
		for _, f := range of {
			if key, ok := schema.KeyAt(f.Path); ok {
				files[key] = f
			}
		}
	}
	return files, nil
}

// list returns the resources of a kind, sorted by name: those with a document, and
// those that Berth recorded.
func (e *Estate) list(ctx context.Context, kind schema.Kind) ([]*Resource, error) {
	byKey := map[schema.Key]*Resource{}
	for key, f := range e.files {
		if key.Kind == kind {
			byKey[key] = &Resource{Key: key, File: f.Path}
		}
	}
	for key, status := range e.recorded(kind) {
		if byKey[key] == nil {
			byKey[key] = &Resource{Key: key}
		}
		byKey[key].Status = &status
	}
	var used map[string]map[string]int
	if kind == schema.KindNode {
		used = e.usedGPUs()
	}
	out := []*Resource{}
	for key, r := range byKey {
		r.Name, r.Held = key.ResourceName(), heldOf(e.status.Revision.Held, key)
		if kind == schema.KindNode {
			r.UsedBy = e.usersOf(key.Name)
		}
		if err := e.document(ctx, r); err != nil {
			return nil, err
		}
		if kind == schema.KindNode {
			r.GPUs, r.now = r.gpuUses(used[r.Key.Name]), time.Now()
		}
		if kind == schema.KindInstance {
			r.SharedRuntime = e.sharedUse(r)
		}
		out = append(out, r)
	}
	slices.SortFunc(out, func(a, b *Resource) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// recorded returns what Berth recorded of the resources of a kind.
func (e *Estate) recorded(kind schema.Kind) map[schema.Key]ResourceStatus {
	all := map[schema.Key]ResourceStatus{}
	for key, s := range e.status.Units.All() {
		all[key] = unitStatus(s)
	}
	for key, s := range e.status.Things {
		all[key] = thingStatus(s)
	}
	maps.DeleteFunc(all, func(key schema.Key, _ ResourceStatus) bool { return key.Kind != kind })
	return all
}

// document reads the document of a resource.
func (e *Estate) document(ctx context.Context, r *Resource) error {
	f, ok := e.files[r.Key]
	if !ok {
		return nil
	}
	data, _, err := e.snap.Read(ctx, f, maxDocument)
	if err != nil {
		return err
	}
	r.text = string(data)
	if doc, err := yaml.YAMLToJSON(data); err == nil {
		r.Document = doc
	} else {
		r.Invalid = true
	}
	return nil
}

// sharedUse returns the shared runtime that the document of an instance names; nil: none.
func (e *Estate) sharedUse(r *Resource) *sharedUse {
	var doc struct {
		Spec struct {
			SharedRuntime     string `json:"shared_runtime"`
			ControlPlaneScope string `json:"control_plane_scope"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(r.Document, &doc); err != nil || doc.Spec.SharedRuntime == "" {
		return nil // berth validate reports an invalid document
	}
	key := schema.SharedRuntimeKey(r.Key.Tenant, doc.Spec.ControlPlaneScope, doc.Spec.SharedRuntime)
	use := &sharedUse{Name: key.ResourceName()}
	s := e.status.Units.Get(key)
	if s == nil {
		return use
	}
	use.Phase = string(s.Phase)
	if i := slices.IndexFunc(s.Attachments, func(a plan.AttachmentStatus) bool { return a.ProjectID == r.Key.ProjectID() }); i >= 0 {
		use.Attachment = &s.Attachments[i]
	}
	return use
}

// line is the shared runtime in one line.
func (u *sharedUse) line() string {
	attachment := "no attachment of this project is recorded"
	if a := u.Attachment; a != nil {
		attachment = "attachment " + string(a.Phase)
		if why := cmp.Or(a.Message, string(a.Reason)); a.Phase != plan.AttachmentAttached && why != "" {
			attachment += ": " + why
		}
	}
	return fmt.Sprintf("%s %s", schema.KindSharedRuntime, cli.Join(u.Name, u.Phase, attachment))
}

// usersOf returns the units with a member on a node, sorted.
func (e *Estate) usersOf(node string) []string {
	var users []string
	for key, s := range e.status.Units.All() {
		if slices.ContainsFunc(s.Members, func(m plan.MemberStatus) bool { return m.Node == node }) {
			users = append(users, key.ResourceName())
		}
	}
	slices.Sort(users)
	return users
}

// find returns the resource of a kind by its full name, or by its last part where
// that is unique.
func (e *Estate) find(ctx context.Context, kind schema.Kind, name string) (*Resource, error) {
	all, err := e.list(ctx, kind)
	if err != nil {
		return nil, err
	}
	name = strings.TrimPrefix(name, "platform/")
	var alike []*Resource
	var names []string
	for _, r := range all {
		if r.Name == name {
			return r, nil
		}
		if r.Key.Name == name {
			alike, names = append(alike, r), append(names, r.Name)
		}
	}
	switch len(alike) {
	case 1:
		return alike[0], nil
	case 0:
	default:
		return nil, cli.Usage(fmt.Errorf("%q names %d %s; choose one of %s", name, len(names), kind.Plural(), strings.Join(names, ", ")))
	}
	for _, h := range e.status.Revision.Held {
		if h.Key.Kind == kind && (h.Key.ResourceName() == name || h.Key.Name == name) {
			return nil, fmt.Errorf("%s is not in force; %s is held: %s: %s", h.Key, h.File, h.Why(), cli.Visible(h.Message))
		}
	}
	for _, r := range all {
		names = append(names, r.Name)
	}
	if like := nearestName(name, names); like != "" {
		return nil, fmt.Errorf("%s %q not found in %s: did you mean %q?", kind, name, e.source, like)
	}
	return nil, fmt.Errorf("%s %q not found in %s; berth get %s lists all", kind, name, e.source, kind.Plural())
}

const (
	maxEvents  = 10     // that describe shows
	maxScanned = 10_000 // that it reads for them
)

// lastEvents returns the newest events about a resource, oldest first.
func (e *Estate) lastEvents(ctx context.Context, name string) []plan.Event {
	events := []plan.Event{}
	if e.repo == nil || e.repo.status == "" {
		return events
	}
	scanned := 0
	for l, err := range e.repo.Events(ctx, e.repo.status, order(io.Discard, true)) {
		if scanned++; scanned > maxScanned || len(events) == maxEvents {
			break
		}
		if err == nil && payloadOf(l.Value).about() == name {
			events = append(events, l.Value)
		}
	}
	slices.Reverse(events)
	return events
}
