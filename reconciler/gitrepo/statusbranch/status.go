package statusbranch

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-git/go-git/v5/plumbing"
	goyaml "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/reconciler/plan"
	"berth/schema"
	"berth/schema/parallel"
)

const (
	revisionFile = "revision.yaml"
	readmeFile   = "README.md"
	// maxStatus bounds one status file in bytes.
	maxStatus = 1 << 20
)

// Options configure how a Branch creates commits.
type Options struct {
	Sign func(raw []byte) ([]byte, error)
	Now  func() time.Time
	// Acquire waits until no other call uses the remote or moves local refs.
	Acquire func(ctx context.Context) (release func(), err error)
	// Publish pushes the objects of set and moves the branch from old to tip.
	Publish func(ctx context.Context, old, tip plumbing.Hash, set *object.Batch) error
	// Copy is a file for a copy of the parsed statuses, from which the next process begins. It can be deleted at any
	// time. Empty: none.
	Copy string
}

// Branch reads and writes the branch berth/status. It is safe for concurrent use.
type Branch struct {
	View
	options Options
}

// New makes a Branch over the mirror of r.
func New(r *object.Reader, o Options) *Branch {
	b := &Branch{View: View{objects: r}, options: o}
	if o.Copy != "" {
		b.copy = &indexCopy{path: o.Copy, log: r.Log}
	}
	return b
}

// View reads the branch berth/status. It caches the last tree it read. It is
// safe for concurrent use.
type View struct {
	objects *object.Reader
	copy    *indexCopy // nil: none

	mu    sync.Mutex
	index *statusIndex // contents of the branch at one tree; nil: not read yet
	// gpuSeconds has what jobs used on the days of a month, by the tree of a day and by project.
	gpuSeconds map[plumbing.Hash]map[string]int64
}

// NewView makes a View over the mirror of r.
func NewView(r *object.Reader) *View { return &View{objects: r} }

// ReadStatus reads berth/status at commit; "" is an empty branch. It skips files
// that Berth cannot have written and names them in Warnings. It caches the last
// result, so the cost follows the changes. The caller must not modify the
// statuses.
func (r *View) ReadStatus(ctx context.Context, commit string) (reconciler.StatusTree, error) {
	root, err := r.objects.Root(commit)
	if err != nil {
		return reconciler.StatusTree{}, fmt.Errorf("read status: %w", err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x, err := r.statusAt(ctx, root)
	if err != nil {
		return reconciler.StatusTree{}, fmt.Errorf("read status %s: %w", commit, err)
	}
	out := reconciler.StatusTree{Revision: x.revision, Unread: x.warnings[revisionFile], Units: x.units, Things: maps.Clone(x.things),
		Reviews: maps.Clone(x.reviews)}
	for _, path := range slices.Sorted(maps.Keys(x.warnings)) {
		out.Warnings = append(out.Warnings, path+": "+x.warnings[path])
	}
	return out, nil
}

// statusIndex is the content of one tree of berth/status.
type statusIndex struct {
	root     plumbing.Hash
	revision reconciler.Revision
	units    plan.Memory
	things   map[schema.Key]*plan.ThingStatus
	tally    *tally
	reviews  map[int]*plan.Review
	warnings map[string]string // path → why the file was skipped
	changed  int               // files that changed since the copy on disk
}

func newIndex() *statusIndex {
	return &statusIndex{things: map[schema.Key]*plan.ThingStatus{}, tally: newTally(), reviews: map[int]*plan.Review{},
		warnings: map[string]string{}}
}

// statusFile is one parsed file of the status tree.
type statusFile struct {
	path    string
	Key     schema.Key        // zero for a file at an unknown path
	Status  *plan.Status      // of a unit
	Thing   *plan.ThingStatus // of any other resource
	pull    int               // pull request of the review; 0: not a review
	review  *plan.Review
	Warning string
}

// statusAt updates the index to root by reading the differences. The caller holds
// mu.
func (r *View) statusAt(ctx context.Context, root plumbing.Hash) (*statusIndex, error) {
	if r.index == nil && r.copy != nil {
		r.index = r.restore(r.copy)
	}
	if r.index == nil {
		r.index = newIndex()
	}
	x := r.index
	if x.root == root {
		return x, nil
	}
	revision, warning, err := r.readRevision(root)
	if err != nil {
		return nil, err
	}
	files, err := r.changedStatus(ctx, x.root, root)
	if err != nil {
		if !x.root.IsZero() && !r.objects.HasTree(x.root.String()) {
			r.index = nil // the mirror was replaced: the next read needs no difference to this tree
		}
		return nil, err
	}
	// No step below can fail, so the index stays consistent.
	x.move(root, revision, warning)
	x.set(files)
	r.copy.save(x)
	return x, nil
}

// move sets the tree of the index, and its revision or why that is unreadable.
func (x *statusIndex) move(root plumbing.Hash, revision reconciler.Revision, warning string) {
	x.root, x.revision = root, revision
	delete(x.warnings, revisionFile)
	if warning != "" {
		x.warnings[revisionFile] = warning
	}
}

// set replaces the given files in the index.
func (x *statusIndex) set(files []statusFile) {
	x.changed += len(files)
	x.tally.take(x, files)
	var units []*plan.Status
	for _, f := range files {
		delete(x.warnings, f.path)
		if f.Warning != "" {
			x.warnings[f.path] = f.Warning
		}
		if f.pull != 0 {
			delete(x.reviews, f.pull)
			if f.review != nil {
				x.reviews[f.pull] = f.review
			}
			continue
		}
		delete(x.things, f.Key)
		if f.Status != nil && f.Warning == "" {
			units = append(units, f.Status)
			continue
		}
		x.units = x.units.Without(f.Key)
		if f.Key.Kind == schema.KindNode {
			x.units = x.units.WithNode(f.Key.Name, f.Thing)
		}
		if f.Thing != nil {
			x.things[f.Key] = f.Thing
		}
	}
	x.units = x.units.With(units...)
}

// IsStatus reports whether a commit is one of berth/status: it has what Berth writes first.
func (r *View) IsStatus(commit string) (bool, error) {
	root, err := r.objects.Root(commit)
	if err != nil {
		return false, err
	}
	for _, name := range []string{revisionFile, eventsDir, auditDir, usageDir} {
		if e, err := r.objects.Lookup(root, name); err != nil || !e.ID.IsZero() {
			return err == nil, err
		}
	}
	return false, nil
}

func (r *View) readRevision(root plumbing.Hash) (out reconciler.Revision, warning string, err error) {
	if root.IsZero() {
		return out, "", nil
	}
	e, err := r.objects.Lookup(root, revisionFile)
	if err != nil {
		return out, "", err
	}
	if e.ID.IsZero() { // the file was deleted from a branch that Berth wrote
		for _, log := range []string{eventsDir, auditDir} {
			if l, err := r.objects.Lookup(root, log); err != nil || l.IsDir() {
				return out, "missing, although " + log + " exists", err
			}
		}
		return out, "", nil
	}
	data, warning, err := r.objects.Blob(e, reconciler.MaxRevision)
	if err != nil || warning != "" {
		return out, warning, err
	}
	if err := yaml.Unmarshal(data, &out); err != nil {
		return reconciler.Revision{}, "not a revision: " + object.OneLine(err.Error(), object.MaxLine), nil
	}
	if reflect.ValueOf(out).IsZero() {
		return out, "not a revision: no field is set", nil
	}
	return out, "", nil
}

// changedStatus reads the status files that differ between two trees.
func (r *View) changedStatus(ctx context.Context, from, to plumbing.Hash) ([]statusFile, error) {
	d := object.Differ{Repo: r.objects, Budget: map[string]int{}}
	for _, dir := range append(statusDirs(), reviewsDir) {
		before, err := r.directory(from, dir)
		if err != nil {
			return nil, err
		}
		after, err := r.directory(to, dir)
		if err != nil {
			return nil, err
		}
		if err := d.Compare(ctx, dir, before, after, 1); err != nil {
			return nil, err
		}
	}
	out := make([]statusFile, len(d.Out))
	err := parallel.Each(len(out), func(i int) (err error) {
		c, read := d.Out[i], r.readStatusFile
		if strings.HasPrefix(c.Path, reviewsDir+"/") {
			read = r.readReview
		}
		if out[i], err = read(c.Path, c.To); err != nil {
			return fmt.Errorf("%s: %w", c.Path, err)
		}
		return nil
	})
	return out, err
}

// directory returns the tree of a directory; the zero hash if it does not exist.
func (r *View) directory(root plumbing.Hash, dir string) (plumbing.Hash, error) {
	e, err := r.objects.Lookup(root, dir)
	if err != nil || !e.IsDir() {
		return plumbing.ZeroHash, err
	}
	return e.ID, nil
}

// readStatusFile reads the status at path. The zero entry means that it was
// deleted.
func (r *View) readStatusFile(path string, e object.Entry) (statusFile, error) {
	f := statusFile{path: path}
	key, ok := schema.StatusKeyAt(path)
	if ok {
		f.Key = key
	}
	switch {
	case e.ID.IsZero():
		return f, nil
	case !ok:
		f.Warning = "no place for a status file"
		return f, nil
	}
	data, warning, err := r.objects.Blob(e, maxStatus)
	if err != nil || warning != "" {
		f.Warning = warning
		return f, err
	}
	return DecodeStatus(path, key, data), nil
}

// DecodeStatus parses a status document. An invalid document has a Warning.
func DecodeStatus(path string, key schema.Key, data []byte) statusFile {
	f := statusFile{path: path, Key: key}
	var into any
	var head struct {
		apiVersion, kind *string
		key              *schema.Key
	}
	if key.Kind.IsUnit() {
		f.Status = &plan.Status{}
		into, head.apiVersion, head.kind, head.key = f.Status, &f.Status.APIVersion, &f.Status.Kind, &f.Status.Key
	} else {
		f.Thing = &plan.ThingStatus{}
		into, head.apiVersion, head.kind, head.key = f.Thing, &f.Thing.APIVersion, &f.Thing.Kind, &f.Thing.Key
	}
	switch err := yaml.Unmarshal(data, into); {
	case err != nil:
		f.Warning = "not a status: " + object.OneLine(err.Error(), object.MaxLine)
	case *head.apiVersion != schema.APIVersion || *head.kind != statusKind(key):
		f.Warning = fmt.Sprintf("apiVersion and kind are not %s and %s", schema.APIVersion, statusKind(key))
	case *head.key != key:
		f.Warning = "its key is not that of its path"
	}
	if f.Warning != "" {
		f.Status, f.Thing = nil, nil
	}
	return f
}

// statusKind returns the kind of the status document of a resource.
func statusKind(key schema.Key) string { return string(key.Kind) + "Status" }

// WriteStatus makes one commit on berth/status and pushes it in one request. Its
// cost follows the changes in b, neither the estate nor the history. If b changes
// nothing, WriteStatus returns old. So a caller may write a batch again on the new
// tip after a lost response. It keeps the statuses of b: the caller must not change what they point to.
//
// The error is reconciler.ErrConflict if another process moved the branch from old.
func (r *Branch) WriteStatus(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	release, err := r.options.Acquire(ctx)
	if err == nil {
		defer release()
		old, err = r.write(ctx, old, b)
	}
	if err != nil {
		return "", fmt.Errorf("write %s: %w", reconciler.BranchStatus, err)
	}
	return old, nil
}

func (r *Branch) write(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	before, err := object.ParseOptionalID(old)
	if err != nil {
		return "", err
	}
	root, err := r.objects.Root(old)
	if err != nil {
		return "", err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	x, err := r.statusAt(ctx, root)
	if err != nil {
		return "", err
	}
	w := statusWriter{objects: r.objects, root: root}
	files, err := w.statuses(b)
	if err != nil {
		return "", err
	}
	if err := w.revision(b.Revision); err != nil {
		return "", err
	}
	for _, add := range []func(reconciler.StatusBatch) error{w.events, w.audit, w.usage} {
		if err := add(b); err != nil {
			return "", err
		}
	}
	if err := w.put(readmeFile, readme(b.Revision, x, files)); err != nil {
		return "", err
	}
	reviews, err := w.reviews(b)
	if err != nil {
		return "", err
	}
	tree, err := r.objects.ApplyOverlay(root, &w.over, &w.set)
	if err != nil {
		return "", err
	}
	if tree == root {
		return old, nil
	}
	var parents []plumbing.Hash
	if !before.IsZero() {
		parents = []plumbing.Hash{before}
	}
	message := statusSubject(b) + "\n\n" + object.Trailers(b.Revision.Commit, b.CorrelationIDs, b.Revision.Epoch)
	raw, err := r.options.Sign(object.EncodeCommit(tree, parents, object.Berth, r.options.Now(), message))
	if err != nil {
		return "", err
	}
	tip := w.set.Add(plumbing.CommitObject, raw)
	if err := r.options.Publish(ctx, before, tip, &w.set); err != nil {
		return "", err
	}
	x.move(tree, b.Revision, "")
	x.set(append(files, reviews...))
	r.copy.save(x)
	return tip.String(), nil
}

// statusWriter collects the files of one status commit.
type statusWriter struct {
	objects *object.Reader
	root    plumbing.Hash
	over    object.Overlay
	set     object.Batch
}

// put writes a file unless its content is unchanged.
func (w *statusWriter) put(path string, data []byte) error {
	h := object.Hash(plumbing.BlobObject, data)
	at, err := w.at(path)
	if err != nil || (at.ID == h && at.Mode == schema.ModePlain) {
		return err
	}
	w.over.File(path, w.set.Add(plumbing.BlobObject, data))
	return nil
}

func (w *statusWriter) at(path string) (object.Entry, error) {
	if w.root.IsZero() {
		return object.Entry{}, nil
	}
	return w.objects.Lookup(w.root, path)
}

// statuses writes and removes status files, and returns them. The index shares the values, which nobody changes.
func (w *statusWriter) statuses(b reconciler.StatusBatch) (files []statusFile, err error) {
	for _, s := range b.Units {
		s.APIVersion, s.Kind = schema.APIVersion, statusKind(s.Key)
		if !s.Key.Kind.IsUnit() {
			return nil, fmt.Errorf("%s is not a unit", s.Key)
		}
		files = append(files, statusFile{Key: s.Key, Status: &s})
	}
	for _, s := range b.Things {
		s.APIVersion, s.Kind = schema.APIVersion, statusKind(s.Key)
		if s.Key.Kind.IsUnit() {
			return nil, fmt.Errorf("%s is a unit", s.Key)
		}
		files = append(files, statusFile{Key: s.Key, Thing: &s})
	}
	encoded := make([][]byte, len(files))
	if err := parallel.Each(len(files), func(i int) (err error) {
		encoded[i], err = files[i].encode()
		return err
	}); err != nil {
		return nil, err
	}
	for i := range files {
		if err := w.put(files[i].path, encoded[i]); err != nil {
			return nil, err
		}
	}
	for _, key := range b.Gone {
		path, err := key.StatusPath()
		if err != nil {
			return nil, err
		}
		w.over.Remove(path)
		files = append(files, statusFile{path: path, Key: key})
	}
	return files, nil
}

// encode returns the YAML of a status, and sets its path.
func (f *statusFile) encode() (data []byte, err error) {
	if f.path, err = f.Key.StatusPath(); err != nil {
		return nil, err
	}
	var document any = f.Thing
	if f.Status != nil {
		document = f.Status
	}
	if data, err = encodeStatus(document); err != nil {
		return nil, fmt.Errorf("status of %s: %w", f.Key, err)
	}
	return data, nil
}

// encodeStatus returns what yaml.Marshal returns. That parses its own JSON as YAML, which is slower, and refuses some texts.
func encodeStatus(document any) ([]byte, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // an integer stays one
	var fields map[string]any
	if err := decoder.Decode(&fields); err != nil {
		return nil, err
	}
	return goyaml.Marshal(fields)
}

func (w *statusWriter) revision(v reconciler.Revision) error {
	data, err := yaml.Marshal(v)
	if err != nil {
		return fmt.Errorf("%s: %w", revisionFile, err)
	}
	if len(data) > reconciler.MaxRevision {
		return fmt.Errorf("%s: %d bytes are more than the %d that are read back", revisionFile, len(data), reconciler.MaxRevision)
	}
	return w.put(revisionFile, data)
}

// statusSubject returns the subject of a status commit.
func statusSubject(b reconciler.StatusBatch) string {
	switch n := len(b.Units) + len(b.Things) + len(b.Gone); {
	case n == 1 && len(b.Units) == 1:
		return object.OneLine(fmt.Sprintf("%s: %s", b.Units[0].Key, b.Units[0].Phase), object.MaxLine)
	case n == 1 && len(b.Things) == 1:
		return object.OneLine(fmt.Sprintf("%s: %s", b.Things[0].Key, b.Things[0].Phase), object.MaxLine)
	case n == 1:
		return object.OneLine(fmt.Sprintf("%s: gone", b.Gone[0]), object.MaxLine)
	case n == 0 && b.Revision.Frozen != "":
		return "Frozen"
	case n == 0 && len(b.Reviews) == 1:
		return fmt.Sprintf("Review of pull request %d", b.Reviews[0].Pull)
	case n == 0 && len(b.Reviews) > 1:
		return fmt.Sprintf("Reviews of %d pull requests", len(b.Reviews))
	case n == 0 && len(b.Closings) > 0:
		return fmt.Sprintf("Usage of %d days closed", len(b.Closings))
	case n == 0 && len(b.Usage) > 0:
		return fmt.Sprintf("Usage of %d days", len(b.Usage))
	case n == 0:
		return "Revision " + object.OneLine(b.Revision.Commit, 12)
	case n == len(b.Units):
		return fmt.Sprintf("%d units", n)
	default:
		return fmt.Sprintf("%d statuses", n)
	}
}
