package gitrepo

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/go-git/go-git/v5/plumbing"
	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/schema"
)

const (
	revisionFile = "revision.yaml"
	readmeFile   = "README.md"
	// maxStatus bounds one status file that is read back.
	maxStatus = 1 << 20
)

// ReadStatus reads what berth/status remembers at commit; "" is nothing. A file
// there that cannot be one of Berth's is passed over and named in Warnings. What
// was read last is kept, so that reading again costs as much as has changed. The
// statuses must not be modified.
func (r *Repo) ReadStatus(ctx context.Context, commit string) (reconciler.StatusTree, error) {
	root, err := r.root(commit)
	if err != nil {
		return reconciler.StatusTree{}, fmt.Errorf("read status: %w", err)
	}
	r.statusMu.Lock()
	defer r.statusMu.Unlock()
	x, err := r.statusAt(ctx, root)
	if err != nil {
		return reconciler.StatusTree{}, fmt.Errorf("read status %s: %w", commit, err)
	}
	out := reconciler.StatusTree{Revision: x.revision, Unread: x.warnings[revisionFile], Units: x.units, Things: maps.Clone(x.things), Reviews: maps.Clone(x.reviews)}
	for _, path := range slices.Sorted(maps.Keys(x.warnings)) {
		out.Warnings = append(out.Warnings, path+": "+x.warnings[path])
	}
	return out, nil
}

// statusIndex is what one tree of berth/status holds.
type statusIndex struct {
	root     plumbing.Hash
	revision reconciler.Revision
	units    plan.Memory
	things   map[schema.Key]*plan.ThingStatus
	tally    *tally
	reviews  map[int]*plan.Review
	warnings map[string]string // path → why it was passed over
}

// statusFile is one file of the status tree as read.
type statusFile struct {
	path    string
	key     schema.Key        // zero for a file that has no place here
	status  *plan.Status      // of a unit
	thing   *plan.ThingStatus // of anything else
	pull    int               // whose review it is; 0: none's
	review  *plan.Review
	warning string
}

// statusAt brings the index to root, by reading what differs. Who calls it
// holds statusMu.
func (r *Repo) statusAt(ctx context.Context, root plumbing.Hash) (*statusIndex, error) {
	if r.index == nil {
		r.index = &statusIndex{things: map[schema.Key]*plan.ThingStatus{}, tally: newTally(), reviews: map[int]*plan.Review{}, warnings: map[string]string{}}
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
		return nil, err
	}
	// Nothing can fail from here on.
	x.root, x.revision = root, revision
	delete(x.warnings, revisionFile)
	if warning != "" {
		x.warnings[revisionFile] = warning
	}
	x.set(files)
	return x, nil
}

// set takes files in.
func (x *statusIndex) set(files []statusFile) {
	x.tally.take(x, files)
	var units []*plan.Status
	for _, f := range files {
		delete(x.warnings, f.path)
		if f.warning != "" {
			x.warnings[f.path] = f.warning
		}
		if f.pull != 0 {
			delete(x.reviews, f.pull)
			if f.review != nil {
				x.reviews[f.pull] = f.review
			}
			continue
		}
		delete(x.things, f.key)
		if f.status != nil && f.warning == "" {
			units = append(units, f.status)
			continue
		}
		x.units = x.units.Without(f.key)
		if f.thing != nil {
			x.things[f.key] = f.thing
		}
	}
	x.units = x.units.With(units...)
}

func (r *Repo) readRevision(root plumbing.Hash) (out reconciler.Revision, warning string, err error) {
	if root.IsZero() {
		return out, "", nil
	}
	e, err := r.lookup(root, revisionFile)
	if err != nil {
		return out, "", err
	}
	if e.id.IsZero() { // of a branch that Berth wrote to, somebody took it away
		for _, log := range []string{eventsDir, auditDir} {
			if l, err := r.lookup(root, log); err != nil || l.dir() {
				return out, "it is gone, and " + log + " is not", err
			}
		}
		return out, "", nil
	}
	data, warning, err := r.blob(e, reconciler.MaxRevision)
	if err != nil || warning != "" {
		return out, warning, err
	}
	if err := yaml.Unmarshal(data, &out); err != nil {
		return reconciler.Revision{}, "not a revision: " + oneLine(err.Error(), maxLine), nil
	}
	if reflect.ValueOf(out).IsZero() {
		return out, "not a revision: it says nothing", nil
	}
	return out, "", nil
}

// changedStatus reads the status files that differ between two trees.
func (r *Repo) changedStatus(ctx context.Context, from, to plumbing.Hash) ([]statusFile, error) {
	d := differ{repo: r, budget: map[string]int{}}
	for _, dir := range append(statusDirs(), reviewsDir) {
		var sides [2]plumbing.Hash
		for i, root := range []plumbing.Hash{from, to} {
			if root.IsZero() {
				continue
			}
			e, err := r.lookup(root, dir)
			if err != nil {
				return nil, err
			}
			if e.dir() {
				sides[i] = e.id
			}
		}
		if err := d.trees(ctx, dir, sides[0], sides[1], 1); err != nil {
			return nil, err
		}
	}
	out := make([]statusFile, 0, len(d.out))
	for _, c := range d.out {
		if strings.HasPrefix(c.path, reviewsDir+"/") {
			f, err := r.readReview(c.path, c.to)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.path, err)
			}
			out = append(out, f)
			continue
		}
		f := statusFile{path: c.path}
		key, ok := schema.StatusKeyAt(c.path)
		switch {
		case !ok && !c.to.id.IsZero():
			f.warning = "no place for a status file"
		case ok && c.to.id.IsZero():
			f.key = key
		case ok:
			data, warning, err := r.blob(c.to, maxStatus)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.path, err)
			}
			if warning != "" {
				f.key, f.warning = key, warning
				break
			}
			f = decodeStatus(c.path, key, data)
		}
		out = append(out, f)
	}
	return out, nil
}

// decodeStatus reads a status document, or says why it is none.
func decodeStatus(path string, key schema.Key, data []byte) statusFile {
	f := statusFile{path: path, key: key}
	var into any
	var head struct {
		apiVersion, kind *string
		key              *schema.Key
	}
	if key.Kind == schema.KindInstance {
		f.status = &plan.Status{}
		into, head.apiVersion, head.kind, head.key = f.status, &f.status.APIVersion, &f.status.Kind, &f.status.Key
	} else {
		f.thing = &plan.ThingStatus{}
		into, head.apiVersion, head.kind, head.key = f.thing, &f.thing.APIVersion, &f.thing.Kind, &f.thing.Key
	}
	switch err := yaml.Unmarshal(data, into); {
	case err != nil:
		f.warning = "not a status: " + oneLine(err.Error(), maxLine)
	case *head.apiVersion != schema.APIVersion || *head.kind != statusKind(key):
		f.warning = fmt.Sprintf("apiVersion and kind are not %s and %s", schema.APIVersion, statusKind(key))
	case *head.key != key:
		f.warning = "its key is not that of its path"
	}
	if f.warning != "" {
		f.status, f.thing = nil, nil
	}
	return f
}

// statusKind is the kind of the status document of a unit or thing.
func statusKind(key schema.Key) string { return string(key.Kind) + "Status" }

// WriteStatus makes one commit on berth/status and pushes it in one request.
// Its cost follows what b changes, neither the estate nor the history. If that
// is nothing, old is returned; so a batch whose answer was lost may be written
// again on the tip that Fetch then gives, and is there once.
//
// The error is reconciler.ErrConflict if the branch is no longer at old.
func (r *Repo) WriteStatus(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	tip, err := r.writeStatus(ctx, old, b)
	if err != nil {
		return "", fmt.Errorf("write %s: %w", reconciler.BranchStatus, err)
	}
	return tip, nil
}

func (r *Repo) writeStatus(ctx context.Context, old string, b reconciler.StatusBatch) (string, error) {
	if r.local != "" {
		return "", errReadOnly
	}
	release, err := r.acquire(ctx)
	if err != nil {
		return "", err
	}
	defer release()
	before, err := parseOptionalID(old)
	if err != nil {
		return "", err
	}
	root, err := r.root(old)
	if err != nil {
		return "", err
	}
	r.statusMu.Lock()
	defer r.statusMu.Unlock()
	x, err := r.statusAt(ctx, root)
	if err != nil {
		return "", err
	}
	w := statusWriter{repo: r, root: root}
	files, err := w.statuses(b)
	if err != nil {
		return "", err
	}
	if err := w.revision(b.Revision); err != nil {
		return "", err
	}
	if err := w.segments(b); err != nil {
		return "", err
	}
	if err := w.put(readmeFile, readme(b.Revision, x, files)); err != nil {
		return "", err
	}
	reviews, err := w.reviews(b)
	if err != nil {
		return "", err
	}
	tree, err := r.applyOverlay(root, &w.over, &w.set)
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
	message := statusSubject(b) + "\n\n" + trailers(b.Revision.Commit, b.CorrelationIDs, b.Revision.Epoch)
	raw, err := r.options.Sign(encodeCommit(tree, parents, r.who, r.options.Now(), message))
	if err != nil {
		return "", err
	}
	tip := w.set.add(plumbing.CommitObject, raw)
	if err := r.publish(ctx, r.status, reconciler.BranchStatus, before, tip, &w.set); err != nil {
		return "", err
	}
	x.root, x.revision = tree, b.Revision
	delete(x.warnings, revisionFile)
	x.set(append(files, reviews...))
	return tip.String(), nil
}

// statusWriter collects one status commit.
type statusWriter struct {
	repo *Repo
	root plumbing.Hash
	over overlay
	set  objectSet
}

// put writes a file unless it is there as it shall be.
func (w *statusWriter) put(path string, data []byte) error {
	h := hashObject(plumbing.BlobObject, data)
	at, err := w.at(path)
	if err != nil || (at.id == h && at.mode == schema.ModePlain) {
		return err
	}
	w.over.file(path, w.set.add(plumbing.BlobObject, data))
	return nil
}

func (w *statusWriter) at(path string) (entry, error) {
	if w.root.IsZero() {
		return entry{}, nil
	}
	return w.repo.lookup(w.root, path)
}

// statuses writes and removes status files. It returns them as they will be
// read.
func (w *statusWriter) statuses(b reconciler.StatusBatch) ([]statusFile, error) {
	var files []statusFile
	add := func(key schema.Key, document any) error {
		path, err := key.StatusPath()
		if err != nil {
			return err
		}
		data, err := yaml.Marshal(document)
		if err != nil {
			return fmt.Errorf("status of %s: %w", key, err)
		}
		// Read back, so that memory is what a restart would find, and nothing
		// of it is the caller's.
		files = append(files, decodeStatus(path, key, data))
		return w.put(path, data)
	}
	for _, s := range b.Units {
		s.APIVersion, s.Kind = schema.APIVersion, statusKind(s.Key)
		if s.Key.Kind != schema.KindInstance {
			return nil, fmt.Errorf("%s is no unit", s.Key)
		}
		if err := add(s.Key, s); err != nil {
			return nil, err
		}
	}
	for _, s := range b.Things {
		s.APIVersion, s.Kind = schema.APIVersion, statusKind(s.Key)
		if s.Key.Kind == schema.KindInstance {
			return nil, fmt.Errorf("%s is a unit", s.Key)
		}
		if err := add(s.Key, s); err != nil {
			return nil, err
		}
	}
	for _, key := range b.Gone {
		path, err := key.StatusPath()
		if err != nil {
			return nil, err
		}
		w.over.remove(path)
		files = append(files, statusFile{path: path, key: key})
	}
	return files, nil
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

// statusSubject is the first line of a status commit.
func statusSubject(b reconciler.StatusBatch) string {
	switch n := len(b.Units) + len(b.Things) + len(b.Gone); {
	case n == 1 && len(b.Units) == 1:
		return oneLine(fmt.Sprintf("%s: %s", b.Units[0].Key, b.Units[0].Phase), maxLine)
	case n == 1 && len(b.Things) == 1:
		return oneLine(fmt.Sprintf("%s: %s", b.Things[0].Key, b.Things[0].Phase), maxLine)
	case n == 1:
		return oneLine(fmt.Sprintf("%s: gone", b.Gone[0]), maxLine)
	case n == 0 && b.Revision.Frozen != "":
		return "Frozen"
	case n == 0 && len(b.Reviews) == 1:
		return fmt.Sprintf("Review of pull request %d", b.Reviews[0].Pull)
	case n == 0 && len(b.Reviews) > 1:
		return fmt.Sprintf("Reviews of %d pull requests", len(b.Reviews))
	case n == 0:
		return "Revision " + oneLine(b.Revision.Commit, 12)
	case n == len(b.Units):
		return fmt.Sprintf("%d units", n)
	default:
		return fmt.Sprintf("%d statuses", n)
	}
}
