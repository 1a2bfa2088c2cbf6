package loop

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"berth/reconciler"
	"berth/reconciler/plan"
	"berth/reconciler/status"
	"berth/runtimes"
	"berth/schema"
	"berth/schema/policy"
)

// What is published, an Artifact of a project or what an AppVersion is made
// from, has no unit and no plan: its bytes are where they are, and the loop only
// says what it sees of them. That has a queue of its own, so that a slow
// registry delays nothing else.

const (
	// artifactWorkers look at bytes side by side, those aside that hang.
	artifactWorkers = 4
	// looksOfOne of one tenant are under way at a time, those that hang too: its
	// registries hold up half of the workers at most, and of others nothing.
	looksOfOne = artifactWorkers / 2
	// lookAgain is when bytes that are not as declared are looked at again, first;
	// the time doubles up to Options.ArtifactInterval.
	lookAgain = 30 * time.Second
	// phaseIntent is the phase of an artifact whose bytes were not seen yet.
	phaseIntent = "intent"
)

// conditionVerified says whether the bytes of what is published are those that
// are declared.
const conditionVerified = "Verified"

// bytesStatus is what status says of the bytes of one reference: what is
// declared, and what was seen. The names are those of the artifact events, which
// are made from it.
type bytesStatus struct {
	AppSlug   string    `json:"app_slug,omitempty"` // of an artifact
	Source    string    `json:"source"`
	Reference string    `json:"reference"`
	MediaType string    `json:"media_type"`
	Digest    string    `json:"digest"` // as declared; "" of a publish intent
	State     string    `json:"state,omitempty"`
	Reason    string    `json:"reason,omitempty"`
	Message   string    `json:"message,omitempty"`
	Found     string    `json:"found_digest,omitempty"`
	FoundType string    `json:"found_media_type,omitempty"`
	Size      int64     `json:"size,omitempty"`
	Checked   time.Time `json:"checked,omitzero"` // when this was seen first; looks that see the same change nothing
}

// declared is b without what was seen.
func (b bytesStatus) declared() bytesStatus {
	return bytesStatus{AppSlug: b.AppSlug, Source: b.Source, Reference: b.Reference, MediaType: b.MediaType, Digest: b.Digest}
}

// artifactStatus is the detail of an Artifact's status.
type artifactStatus struct {
	UID string `json:"uid,omitempty"` // by which it goes on under another name
	bytesStatus
}

// versionStatus is the detail of an AppVersion's status, by the names of its
// manifest.
type versionStatus struct {
	Artifacts map[string]bytesStatus `json:"artifacts"`
}

// published is one thing with bytes, as it is declared.
type published struct {
	head   *schema.Header
	status string                 // as declared; "" is a publish intent
	bytes  map[string]bytesStatus // an artifact's has the name ""
}

// source is where the bytes of b are, or why they may not be looked at there.
// Where what is found there without the platform's credential may not be all,
// why says so.
func (p *published) source(d *schema.Desired, rules *policy.Sources, b bytesStatus) (source *schema.ArtifactSource, why string) {
	k := p.head.Key
	t := d.Tenants[k.Tenant]
	if t != nil {
		source = t.ArtifactSources[b.Source]
	}
	if source == nil {
		source = d.Platform.ArtifactSources[b.Source]
	}
	if source == nil {
		return nil, "there is no source " + b.Source
	}
	if decision, ok := rules.Allowed(k.Project, b.AppSlug, source); !ok {
		return nil, decision.Message
	}
	if k.Kind != schema.KindArtifact {
		whole := *source
		whole.Spec.Repositories = nil
		return &whole, ""
	}
	within, decision, ok := policy.ReferenceAllowed(k, b.Reference, source)
	if !ok {
		return nil, decision.Message
	}
	only := *source
	if only.Spec.Repositories = nil; within != "" {
		only.Spec.Repositories = []string{within}
	}
	if !policy.Shared(source) {
		only.Spec.Credential = ""
		return &only, fmt.Sprintf("the credential of %s is not shown for what projects publish, as the source names no repositories for them", source.Key)
	}
	return &only, ""
}

// print is equal where a look would look at the same, for the same: a step of its
// owner's may wait for a look of its own. The rules are those of its owner.
func (p *published) print(d *schema.Desired, rules *policy.Sources) string {
	type what struct {
		bytesStatus
		Source *schema.ArtifactSourceSpec
		Why    string
	}
	all := map[string]what{}
	for name, b := range p.bytes {
		w := what{bytesStatus: b}
		var source *schema.ArtifactSource
		if source, w.Why = p.source(d, rules, b); source != nil {
			w.Source = &source.Spec
		}
		all[name] = w
	}
	data, err := json.Marshal(all)
	if err != nil {
		panic(err) // strings only
	}
	return p.status + " " + string(data)
}

// publications are all things with bytes that are in force of an owner: a
// tenant, or "", the platform.
func publications(d *schema.Desired, owner string) map[schema.Key]*published {
	out := map[schema.Key]*published{}
	if owner == "" {
		for _, versions := range d.Platform.Versions {
			for _, v := range versions {
				if p := ofVersion(v); p != nil {
					out[v.Key] = p
				}
			}
		}
	}
	if t := d.Tenants[owner]; t != nil {
		for _, project := range t.Projects {
			for _, a := range project.Artifacts {
				out[a.Key] = ofArtifact(a)
			}
		}
	}
	return out
}

// changedOwners are the tenants, and "" for the platform, of which anything may
// be otherwise than it was in last, nil for the first time. What did not change
// is shared between revisions. As the platform's rules are everybody's, a change
// there is one of all.
func changedOwners(last, now *schema.Desired) []string {
	var out []string
	all := last == nil || last.Platform != now.Platform
	if all {
		out = append(out, "")
	}
	for name, t := range now.Tenants {
		if all || last.Tenants[name] != t {
			out = append(out, name)
		}
	}
	if last != nil {
		for name := range last.Tenants {
			if now.Tenants[name] == nil {
				out = append(out, name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// publication is one of them, or nil.
func publication(d *schema.Desired, key schema.Key) *published {
	switch key.Kind {
	case schema.KindAppVersion:
		if v := d.Version(key.Parent, key.Name); v != nil {
			return ofVersion(v)
		}
	case schema.KindArtifact:
		if t := d.Tenants[key.Tenant]; t != nil && t.Projects[key.Project] != nil {
			if a := t.Projects[key.Project].Artifacts[key.Name]; a != nil {
				return ofArtifact(a)
			}
		}
	}
	return nil
}

func ofArtifact(a *schema.Artifact) *published {
	return &published{head: &a.Header, status: string(a.Spec.Status), bytes: map[string]bytesStatus{
		"": {AppSlug: a.Spec.App, Source: a.Spec.Source, Reference: a.Spec.Reference, MediaType: a.Spec.MediaType, Digest: a.Spec.Digest},
	}}
}

// ofVersion is nil for a version that is made from nothing that is named.
func ofVersion(v *schema.AppVersion) *published {
	if len(v.Spec.Manifest.Artifacts) == 0 {
		return nil
	}
	p := &published{head: &v.Header, status: string(v.Spec.Status), bytes: map[string]bytesStatus{}}
	for name, m := range v.Spec.Manifest.Artifacts {
		p.bytes[name] = bytesStatus{Source: m.Source, Reference: m.Reference, MediaType: m.MediaType, Digest: m.Digest}
	}
	return p
}

// seen is what status remembers of bytes.
func seen(s *plan.ThingStatus) map[string]bytesStatus {
	if s == nil {
		return nil
	}
	// Memory is never trusted to be well formed.
	if s.Key.Kind == schema.KindAppVersion {
		var d versionStatus
		_ = json.Unmarshal(s.Detail, &d)
		return d.Artifacts
	}
	var d bytesStatus
	if json.Unmarshal(s.Detail, &d) != nil {
		return nil
	}
	return map[string]bytesStatus{"": d}
}

// next is the status of p after prev (nil: there is none), with what looks saw
// now (nil: nothing new). What was seen of bytes that are declared no longer is
// forgotten. The commit is the one that changed what is declared; "" where none
// did. Pure.
func (p *published) next(prev *plan.ThingStatus, sights map[string]bytesStatus, commit string) plan.ThingStatus {
	s := plan.ThingStatus{APIVersion: schema.APIVersion, Kind: string(p.head.Key.Kind) + "Status", Key: p.head.Key, UID: p.head.UID}
	before := seen(prev)
	all := make(map[string]bytesStatus, len(p.bytes))
	same := len(before) == len(p.bytes)
	for name, b := range p.bytes {
		old, known := before[name]
		now, looked := sights[name]
		known = known && old.declared() == b
		same = same && known
		switch {
		case looked:
			checked := now.Checked
			if now.Checked = old.Checked; !known || now != old {
				now.Checked = checked
			}
			all[name] = now
		case known:
			all[name] = old
		default:
			all[name] = b
		}
	}
	if s.Revision, s.CorrelationID = commit, correlation(commit); commit == "" && prev != nil && same {
		s.Revision, s.CorrelationID = prev.Revision, prev.CorrelationID
	}
	verified := verdict(all, s.Revision)
	s.Phase = p.phase(prev, same, verified.Status == "True", sights != nil)
	if verified.Status == "True" && p.withheld(s.Phase) {
		verified.Status, verified.Reason, verified.Message = "Unknown", "NotLookedAt", "nobody looked at the bytes since this change"
	}
	s.Conditions = []plan.Condition{p.ready(s.Phase, verified), verified}
	var detail any = versionStatus{all}
	if one, ok := all[""]; ok {
		detail = artifactStatus{p.head.UID, one}
	}
	data, err := json.Marshal(detail)
	if err == nil {
		data, err = schema.CanonicalJSON(data)
	}
	if err != nil {
		panic(err) // texts and numbers only
	}
	s.Detail = data
	return s
}

// phase is how far p has come. An artifact is an intent until its bytes were
// seen once, whatever is declared of it meanwhile and whatever is seen later;
// from then on the state is its owner's word, but that it is promoted only once
// a look of that change's own found them (fresh). One that is declared otherwise
// is seen anew.
func (p *published) phase(prev *plan.ThingStatus, same, verified, fresh bool) string {
	promoted := string(schema.ArtifactPromoted)
	switch {
	case p.head.Key.Kind == schema.KindAppVersion:
		return p.status
	case p.status == "":
		return phaseIntent
	case !verified && (prev == nil || !same || prev.Phase == phaseIntent):
		return phaseIntent
	case p.status == promoted && prev != nil && prev.Phase != promoted && !(verified && fresh):
		return prev.Phase
	}
	return p.status
}

// withheld says whether p, in a phase, waits for its bytes to be seen.
func (p *published) withheld(phase string) bool {
	return p.head.Key.Kind == schema.KindArtifact && p.status != "" && phase != p.status
}

// verdict is the condition Verified of bytes: the worst of all of them.
func verdict(all map[string]bytesStatus, revision string) plan.Condition {
	c := plan.Condition{Type: conditionVerified, Status: "True", Reason: "Found", Revision: revision}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		b := all[name]
		status := "False"
		switch runtimes.SightState(b.State) {
		case runtimes.SightFound:
			continue
		case runtimes.SightDifferent, runtimes.SightAbsent:
		default:
			status = "Unknown"
		}
		if c.Status == "False" || c.Status == status {
			continue
		}
		c.Status, c.Reason, c.Message = status, b.Reason, b.Message
		if b.Reason == "" {
			c.Reason, c.Message = "NotLookedAt", "nobody looked at the bytes yet"
		}
		if name != "" {
			c.Message = name + ": " + c.Message
		}
	}
	return c
}

// ready is whether p can be used.
func (p *published) ready(phase string, verified plan.Condition) plan.Condition {
	c := plan.Condition{Type: "Ready", Status: "True", Reason: reasonOf(plan.Phase(phase)), Revision: verified.Revision}
	switch {
	case p.status == "":
		c.Status, c.Message = "False", "it is not registered: once the bytes are there, add their digest and status: registered"
	case p.status == string(schema.ArtifactRetired), p.status == string(schema.StatusDisabled):
		c.Status = "False"
	case verified.Status != "True":
		c.Status, c.Reason, c.Message = verified.Status, verified.Reason, verified.Message
		if p.withheld(phase) {
			c.Message = fmt.Sprintf("it is %s once its bytes were seen: %s", p.status, verified.Message)
		}
	}
	return c
}

// Unseen finds the promotions of a change that have to wait, as the bytes were not
// found when Berth looked at them last. They hold nothing: the change comes into
// force, and the step is taken once the bytes are there. thing is what
// berth/status says of what was before. Pure.
func Unseen(before, after *schema.Desired, thing func(schema.Key) *plan.ThingStatus) []schema.Diagnostic {
	var out []schema.Diagnostic
	for tenant, t := range after.Tenants {
		if before.Tenants[tenant] == t {
			continue
		}
		was := schema.ArtifactsBefore(before.Tenants[tenant], t)
		for _, project := range t.Projects {
			for _, a := range project.Artifacts {
				old := was(a)
				if a.Spec.Status != schema.ArtifactPromoted || old == nil || old.Spec.Status == schema.ArtifactPromoted {
					continue
				}
				if why := unverified(thing(old.Key)); why != "" {
					at := a.At("spec.status")
					out = append(out, schema.Diagnostic{
						Severity: schema.SeverityWarning, Code: schema.CodeArtifactUnseen, File: a.File, Line: at.Line, Column: at.Column, Path: "spec.status",
						Message: "it is promoted once its bytes are found, and stays what it is until then; when Berth looked last: " + why,
					})
				}
			}
		}
	}
	schema.SortDiagnostics(out)
	return out
}

// unverified is why the bytes of what s, or nil, is the status of are not known to
// be there; "": they are, or nobody looked.
func unverified(s *plan.ThingStatus) string {
	if s == nil {
		return ""
	}
	for _, c := range s.Conditions {
		if c.Type == conditionVerified && c.Status != "True" {
			return c.Message
		}
	}
	return ""
}

// VersionBlocked says whether new instances of a version have to wait, as its
// bytes are gone or are others than it names: what would run is not what was
// looked at. s is the version's status, or nil. What cannot be told blocks
// nothing, and neither does what was seen of a version that named other bytes.
// Pure.
func VersionBlocked(v *schema.AppVersion, s *plan.ThingStatus) (plan.Blocked, bool) {
	p := ofVersion(v)
	if p == nil {
		return plan.Blocked{}, false
	}
	saw := seen(s)
	for _, name := range slices.Sorted(maps.Keys(p.bytes)) {
		b := saw[name]
		switch runtimes.SightState(b.State) {
		case runtimes.SightDifferent, runtimes.SightAbsent:
			if b.declared() == p.bytes[name] {
				return plan.Blocked{Code: "artifact.unverified", Wait: true, Message: fmt.Sprintf("%s is made from %s of %s, and new instances wait: %s", v.Key, b.Reference, b.Source, b.Message)}, true
			}
		}
	}
	return plan.Blocked{}, false
}

// artifacts is what the loop knows of looks in this run.
type artifacts struct {
	// The scan's own.
	desired *schema.Desired // scanned last
	main    string
	prints  map[schema.Key]string // of all that are looked at

	misses map[schema.Key]int // looks in a row that did not find all; under Reconciler.mu
	turns  turns
}

// turns lets each tenant look at so many things at a time; the platform is one
// of them. What comes when a tenant's turns are taken waits for one, in the order
// of coming, and holds no worker meanwhile.
type turns struct {
	mu sync.Mutex
	of map[string]*turn // nobody is in it whose turns are all free
}

type turn struct {
	taken   int // never less than looksOfOne while anything waits
	waiting []schema.Key
	waits   map[schema.Key]bool // those of waiting
	called  map[schema.Key]bool // its turn is taken for it, and it is in the queue
}

// take says whether key may be looked at now, which done ends; otherwise it
// waits, and done of another one hands it back.
func (t *turns) take(key schema.Key) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.of[key.Tenant]
	if of == nil {
		of = &turn{waits: map[schema.Key]bool{}, called: map[schema.Key]bool{}}
		if t.of == nil {
			t.of = map[string]*turn{}
		}
		t.of[key.Tenant] = of
	}
	switch {
	case of.called[key]:
		delete(of.called, key)
	case of.taken < looksOfOne:
		of.taken++
	default:
		if !of.waits[key] {
			of.waiting, of.waits[key] = append(of.waiting, key), true
		}
		return false
	}
	return true
}

// done ends a turn of key's tenant and gives it to who waits longest, if anybody
// does: that one has to be enqueued.
func (t *turns) done(key schema.Key) (next schema.Key, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	of := t.of[key.Tenant]
	if len(of.waiting) > 0 {
		next, of.waiting = of.waiting[0], of.waiting[1:]
		delete(of.waits, next)
		of.called[next] = true
		return next, true
	}
	if of.taken--; of.taken == 0 {
		delete(t.of, key.Tenant)
	}
	return schema.Key{}, false
}

// scan is what is published by whose estate changed since the last scan, what a
// look at each that is not suspended would look at, and what is gone since.
func (a *artifacts) scan(d *schema.Desired) (now map[schema.Key]*published, prints map[schema.Key]string, gone []schema.Key) {
	now, prints = map[schema.Key]*published{}, map[schema.Key]string{}
	for _, owner := range changedOwners(a.desired, d) {
		rules := policy.SourcesOf(d.Platform, d.Tenants[owner])
		for k, p := range publications(d, owner) {
			if now[k] = p; !p.head.Suspend {
				prints[k] = p.print(d, rules)
			}
		}
		if a.desired == nil {
			continue
		}
		for k := range publications(a.desired, owner) {
			if now[k] == nil {
				gone = append(gone, k)
			}
		}
	}
	return now, prints, gone
}

// scanArtifacts records what a decision says of things with bytes, and has
// those looked at that are new or declared otherwise.
func (r *Reconciler) scanArtifacts(ctx context.Context) error {
	st := r.current()
	if st == nil || st.Desired == r.looks.desired {
		return nil
	}
	all, prints, gone := r.looks.scan(st.Desired)
	if r.looks.desired == nil {
		r.looks.prints = map[schema.Key]string{}
		for _, s := range r.writer.ResourcesOf(schema.KindArtifact, schema.KindAppVersion) {
			if all[s.Key] == nil {
				gone = append(gone, s.Key) // while no daemon ran
			}
		}
	}
	r.writer.MoveResources(artifactMoves(all, gone, r.writer.Resource))
	var changed []schema.Key
	for _, k := range slices.SortedFunc(maps.Keys(all), schema.Key.Compare) {
		if prev := r.writer.Resource(k); !all[k].head.Suspend && (prev == nil || !status.EqualJSON(prev, all[k].next(prev, nil, ""))) {
			changed = append(changed, k)
		}
	}
	var causes map[schema.Key]string
	if changed != nil {
		causes = attribute(r.merged(ctx, r.looks.main, st.Main), st.Main, changed)
	}
	for _, k := range changed {
		for {
			prev := r.writer.Resource(k)
			if _, ok := r.writer.SetResource(prev, all[k].next(prev, nil, causes[k])); ok {
				break
			}
		}
	}
	for _, k := range gone {
		for s := r.writer.Resource(k); s != nil && !r.writer.RemoveResource(s); {
			s = r.writer.Resource(k)
		}
		delete(r.looks.prints, k)
	}
	for k := range all {
		print, looked := prints[k]
		switch {
		case !looked:
			delete(r.looks.prints, k)
		case print != r.looks.prints[k]:
			r.looks.prints[k] = print
			r.mu.Lock()
			delete(r.looks.misses, k)
			r.mu.Unlock()
			r.Enqueue(reconciler.Item{Task: reconciler.TaskArtifact, Unit: k})
		}
	}
	r.looks.desired, r.looks.main = st.Desired, st.Main
	return nil
}

// artifactMoves are the artifacts that go on under another key, by their uid,
// within a tenant: where each was, by where it is. gone are the keys that nothing
// has any more. What had the place of one that moved, and did not, is not of it.
func artifactMoves(all map[schema.Key]*published, gone []schema.Key, thing func(schema.Key) *plan.ThingStatus) map[schema.Key]schema.Key {
	type identity struct{ tenant, uid string }
	was := map[identity]schema.Key{}
	remember := func(k schema.Key) {
		var d artifactStatus
		if s := thing(k); k.Kind == schema.KindArtifact && s != nil && json.Unmarshal(s.Detail, &d) == nil && d.UID != "" {
			was[identity{k.Tenant, d.UID}] = k
		}
	}
	for _, k := range gone {
		remember(k)
	}
	for k := range all {
		remember(k)
	}
	moves := map[schema.Key]schema.Key{}
	for k, p := range all {
		if from, ok := was[identity{k.Tenant, p.head.UID}]; ok && from != k && k.Kind == schema.KindArtifact {
			moves[k] = from
		}
	}
	return moves
}

// lookAtArtifact looks at the bytes of one thing and says when to look again.
func (r *Reconciler) lookAtArtifact(ctx context.Context, key schema.Key) (time.Duration, error) {
	st := r.current()
	if st == nil || r.o.Artifacts == nil {
		return 0, nil
	}
	if !r.looks.turns.take(key) {
		return 0, nil
	}
	defer func() {
		if next, ok := r.looks.turns.done(key); ok {
			r.Enqueue(reconciler.Item{Task: reconciler.TaskArtifact, Unit: next})
		}
	}()
	p := publication(st.Desired, key)
	if p == nil || p.head.Suspend {
		return 0, nil
	}
	began := r.writer.Resource(key)
	rules := policy.SourcesOf(st.Desired.Platform, st.Desired.Tenants[key.Tenant])
	sights, complete := map[string]bytesStatus{}, true
	for _, name := range slices.Sorted(maps.Keys(p.bytes)) {
		b := p.bytes[name]
		var s runtimes.Sight
		source, why := p.source(st.Desired, rules, b)
		if source == nil {
			s = runtimes.Sight{State: runtimes.SightUnknown, Reason: "SourceRefused", Message: why}
		} else {
			s = r.o.Artifacts.Look(ctx, source, b.Reference, b.Digest, b.MediaType)
			if why != "" && s.State != runtimes.SightFound {
				s.Message += "; " + why
			}
		}
		if ctx.Err() != nil {
			return 0, nil // it was stopped in the middle: that says nothing of the bytes
		}
		complete = complete && s.State == runtimes.SightFound
		b.State, b.Reason, b.Message = string(s.State), s.Reason, s.Message
		b.Found, b.FoundType, b.Size, b.Checked = s.Digest, s.MediaType, s.Size, r.o.Now().UTC().Truncate(time.Second)
		sights[name] = b
	}
	if began == nil || !r.saw(key, p, st.Desired, began.Revision, sights) {
		return time.Second, nil // a decision came meanwhile, and its scan comes first
	}
	return r.lookNext(key, complete), nil
}

// saw records what a look at p saw, if p is still what is in force, and since the
// commit that it followed when the look began.
func (r *Reconciler) saw(key schema.Key, p *published, d *schema.Desired, revision string, sights map[string]bytesStatus) bool {
	r.writer.Decision.RLock()
	defer r.writer.Decision.RUnlock()
	if now := r.current().Desired; now != d {
		if q := publication(now, key); q == nil || q.head.Suspend ||
			q.print(now, policy.SourcesOf(now.Platform, now.Tenants[key.Tenant])) != p.print(d, policy.SourcesOf(d.Platform, d.Tenants[key.Tenant])) {
			return false
		}
	}
	for {
		prev := r.writer.Resource(key)
		if prev == nil || prev.Revision != revision || !status.EqualJSON(prev, p.next(prev, nil, "")) {
			return false // the scan records it first, with the commit that brought it
		}
		next := p.next(prev, sights, "")
		if prev.Phase == phaseIntent && next.Phase != phaseIntent && next.Phase != string(schema.ArtifactRegistered) {
			// Its owner went on before its bytes came: the steps are told in order.
			registered := *p
			registered.status = string(schema.ArtifactRegistered)
			if _, ok := r.writer.SetResource(prev, registered.next(prev, sights, "")); !ok {
				continue
			}
			prev = r.writer.Resource(key)
		}
		changed, ok := r.writer.SetResource(prev, next)
		if !ok {
			continue
		}
		if unverified(prev) != unverified(&next) {
			r.pulls.ReplanLater() // one may promote the artifact
		}
		if v := verdict(sights, ""); changed && v.Status != "True" {
			r.logAbout(key, r.appOf(r.current().Desired)(key), "", next.CorrelationID).Warn("an artifact's bytes are not as declared, or cannot be seen", "artifact", key.String(), "artifact_id", schema.ID(next.UID, key),
				"verified", v.Status, "reason", v.Reason, "message", v.Message, "commit", short(next.Revision))
		}
		return true
	}
}

// lookNext is when to look at a thing again: after the interval, or sooner and
// ever later as long as it is not as declared. Some chance keeps those apart
// that were looked at together.
func (r *Reconciler) lookNext(key schema.Key, complete bool) time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	again := r.o.ArtifactInterval
	if complete {
		delete(r.looks.misses, key)
	} else {
		again = min(again, lookAgain<<min(r.looks.misses[key], 10))
		r.looks.misses[key]++
	}
	return again - again/10 + rand.N(again/5+1)
}
