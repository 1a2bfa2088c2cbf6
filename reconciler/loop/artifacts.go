package loop

import (
	"context"
	"encoding/json"
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

// verifyRetry is the first delay before missing or different bytes are verified again.
// The delay doubles up to Settings.ArtifactInterval.
const verifyRetry = 30 * time.Second

// artifactScanner records the published resources in force and verifies their bytes. A
// published resource has no unit and no plan: the loop only reports the result.
type artifactScanner struct {
	*recorder
	inForce  *inForce
	history  history
	reader   runtimes.Artifacts // nil: bytes are not verified
	interval time.Duration      // between two verifications of one resource

	// Used by the scan only, of which one runs at a time.
	desired      *schema.Desired // of the last scan
	main         string
	fingerprints map[schema.Key]string // fingerprints of the verified declarations

	mu     sync.Mutex
	misses map[schema.Key]int // verifications in a row that did not find all bytes
}

// scan records the published resources that a decision changes, and enqueues those
// with a new declaration.
func (a *artifactScanner) scan(ctx context.Context, _ reconciler.Item) (time.Duration, error) {
	st := a.inForce.current()
	if st == nil || st.Desired == a.desired {
		return 0, nil
	}
	all, prints, gone := a.difference(st.Desired)
	if a.desired == nil { // also finds documents deleted while no daemon ran
		a.fingerprints = map[schema.Key]string{}
		for _, s := range a.status.ResourcesOf(schema.KindArtifact, schema.KindAppVersion) {
			if all[s.Key] == nil {
				gone = append(gone, s.Key)
			}
		}
	}
	a.status.MoveResources(artifactMoves(all, gone, a.status.Resource))
	a.recordChanged(ctx, st, all)
	for _, k := range gone {
		for s := a.status.Resource(k); s != nil && !a.status.RemoveResource(s); {
			s = a.status.Resource(k)
		}
		delete(a.fingerprints, k)
	}
	for k := range all {
		switch print, isVerified := prints[k]; {
		case !isVerified:
			delete(a.fingerprints, k)
		case print != a.fingerprints[k]:
			a.fingerprints[k] = print
			a.mu.Lock()
			delete(a.misses, k)
			a.mu.Unlock()
			a.queues.add(reconciler.Item{Task: reconciler.TaskArtifact, Unit: k})
		}
	}
	a.desired, a.main = st.Desired, st.Main
	return 0, nil
}

// difference returns the published resources of the owners that changed since the
// last scan, the fingerprints of those that are not suspended, and the keys that are
// gone since.
func (a *artifactScanner) difference(d *schema.Desired) (now map[schema.Key]*published, prints map[schema.Key]string, gone []schema.Key) {
	now, prints = map[schema.Key]*published{}, map[schema.Key]string{}
	for _, owner := range changedOwners(a.desired, d) {
		rules := policy.SourcesOf(d.Platform, d.Tenants[owner])
		for k, p := range publishedBy(d, owner) {
			if now[k] = p; !p.head.Suspend {
				prints[k] = p.fingerprint(d, rules)
			}
		}
		if a.desired == nil {
			continue
		}
		for k := range publishedBy(a.desired, owner) {
			if now[k] == nil {
				gone = append(gone, k)
			}
		}
	}
	return now, prints, gone
}

// recordChanged records the resources with a changed declaration, and the commit that
// changed it.
func (a *artifactScanner) recordChanged(ctx context.Context, st *reconciler.State, all map[schema.Key]*published) {
	var changed []schema.Key
	for _, k := range slices.SortedFunc(maps.Keys(all), schema.Key.Compare) {
		if prev := a.status.Resource(k); !all[k].head.Suspend && (prev == nil || !status.EqualJSON(prev, all[k].next(prev, nil, ""))) {
			changed = append(changed, k)
		}
	}
	if changed == nil {
		return
	}
	var merged []mergedCommit
	if a.main != "" && a.main != st.Main {
		merged = a.history.between(ctx, a.main, st.Main)
	}
	causes := attribute(merged, st.Main, changed)
	for _, k := range changed {
		for {
			prev := a.status.Resource(k)
			if _, ok := a.status.SetResource(prev, all[k].next(prev, nil, causes[k])); ok {
				break
			}
		}
	}
}

// artifactMoves returns the artifacts that have another key than before, by their
// uid within a tenant: the old key of each new one. gone are the keys that are not
// declared any more.
func artifactMoves(
	all map[schema.Key]*published, gone []schema.Key, recorded func(schema.Key) *plan.ThingStatus,
) map[schema.Key]schema.Key {
	type identity struct{ tenant, uid string }
	was := map[identity]schema.Key{}
	remember := func(k schema.Key) {
		var d artifactStatus
		if s := recorded(k); k.Kind == schema.KindArtifact && s != nil && json.Unmarshal(s.Detail, &d) == nil && d.UID != "" {
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

// verify verifies the bytes of one resource. It returns the delay until the next
// verification.
func (a *artifactScanner) verify(ctx context.Context, item reconciler.Item) (time.Duration, error) {
	key, st := item.Unit, a.inForce.current()
	if st == nil || a.reader == nil {
		return 0, nil
	}
	p := publishedResource(st.Desired, key)
	if p == nil || p.head.Suspend {
		return 0, nil
	}
	before := a.status.Resource(key)
	found, isComplete := a.readBytes(ctx, st.Desired, p)
	if ctx.Err() != nil {
		return 0, nil // cancelled: the result is unknown
	}
	if before == nil || !a.recordFound(p, st.Desired, before.Revision, found) {
		return time.Second, nil // a decision came meanwhile; its scan comes first
	}
	return a.nextVerification(key, isComplete), nil
}

// readBytes observes all references of a resource. isComplete is true if all are as
// declared.
func (a *artifactScanner) readBytes(ctx context.Context, d *schema.Desired, p *published) (found map[string]bytesStatus, isComplete bool) {
	rules := policy.SourcesOf(d.Platform, d.Tenants[p.head.Key.Tenant])
	found, isComplete = map[string]bytesStatus{}, true
	for _, name := range slices.Sorted(maps.Keys(p.bytes)) {
		if ctx.Err() != nil {
			return nil, false
		}
		b := p.bytes[name]
		s := runtimes.Sight{State: runtimes.SightUnknown, Reason: runtimes.ReasonSourceRefused}
		source, why := p.source(d, rules, b)
		if source == nil {
			s.Message = why
		} else {
			s = a.reader.Look(ctx, source, b.Reference, b.Digest, b.MediaType)
			if why != "" && s.State != runtimes.SightFound {
				s.Message += "; " + why
			}
		}
		isComplete = isComplete && s.State == runtimes.SightFound
		b.State, b.Reason, b.Message = string(s.State), s.Reason, s.Message
		b.Found, b.FoundType, b.Size, b.Checked = s.Digest, s.MediaType, s.Size, a.now().UTC().Truncate(time.Second)
		found[name] = b
	}
	return found, isComplete
}

// recordFound records what a verification of p, as declared in d, found. It returns
// false if p is not in force any more, or has another revision than when the
// verification began.
func (a *artifactScanner) recordFound(p *published, d *schema.Desired, revision string, found map[string]bytesStatus) bool {
	key := p.head.Key
	a.status.Decision.RLock()
	defer a.status.Decision.RUnlock()
	now := a.inForce.current().Desired
	if !isVerifiedAlike(p, d, now) {
		return false
	}
	for {
		prev := a.status.Resource(key)
		if prev == nil || prev.Revision != revision || !status.EqualJSON(prev, p.next(prev, nil, "")) {
			return false // the scan records it first, with the commit that changed it
		}
		if a.replaceStatus(prev, p, now, found) {
			return true
		}
	}
}

// replaceStatus records what a verification of p, as in force in now, found. It returns false if prev
// is no longer the status of p.
func (a *artifactScanner) replaceStatus(prev *plan.ThingStatus, p *published, now *schema.Desired, found map[string]bytesStatus) bool {
	key, next := p.head.Key, p.next(prev, found, "")
	if prev.Phase == phaseIntent && next.Phase != phaseIntent && next.Phase != string(schema.ArtifactRegistered) {
		// The owner promoted it before its bytes came: events come in order.
		registered := *p
		registered.status = string(schema.ArtifactRegistered)
		if _, ok := a.status.SetResource(prev, registered.next(prev, found, "")); !ok {
			return false
		}
		prev = a.status.Resource(key)
	}
	changed, ok := a.status.SetResource(prev, next)
	if !ok {
		return false
	}
	if unverifiedReason(prev) != unverifiedReason(&next) {
		a.pulls.ReplanLater() // one may promote the artifact
	}
	if v := verifiedCondition(found, ""); changed && v.Status != plan.ConditionTrue {
		a.logOf(key, a.appOf(now, key), "", next.CorrelationID).Warn("artifact not verified", "artifact", key.String(), "artifact_id",
			schema.ID(next.UID, key),
			"verified", v.Status, "reason", v.Reason, "message", v.Message, "commit", reconciler.Short(next.Revision))
	}
	return true
}

// isVerifiedAlike returns true if p, as declared in d, is verified in the same way
// in now.
func isVerifiedAlike(p *published, d, now *schema.Desired) bool {
	if now == d {
		return true
	}
	key := p.head.Key
	q := publishedResource(now, key)
	return q != nil && !q.head.Suspend &&
		q.fingerprint(now, policy.SourcesOf(now.Platform, now.Tenants[key.Tenant])) == p.fingerprint(d,
			policy.SourcesOf(d.Platform, d.Tenants[key.Tenant]))
}

// nextVerification returns the delay until a resource is verified again: the
// interval, or a shorter and doubling one while its bytes are not as declared. The
// delay is random by a tenth, to spread verifications that began together.
func (a *artifactScanner) nextVerification(key schema.Key, isComplete bool) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	again := a.interval
	if isComplete {
		delete(a.misses, key)
	} else {
		again = min(again, verifyRetry<<min(a.misses[key], 10))
		a.misses[key]++
	}
	return again - again/10 + rand.N(again/5+1)
}
