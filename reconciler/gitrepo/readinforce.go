package gitrepo

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/schema"
)

// ReadInForce parses a commit of berth/in-force.
func (r *history) ReadInForce(_ context.Context, commit string) (reconciler.InForce, error) {
	w, err := r.inForceAt(commit)
	if err != nil {
		return reconciler.InForce{}, fmt.Errorf("read back %s at %s: %w", reconciler.BranchInForce, commit, err)
	}
	return w, nil
}

func (r *history) inForceAt(id string) (w reconciler.InForce, err error) {
	h, err := object.ParseID(id)
	if err != nil {
		return w, err
	}
	c, err := r.Commit(h)
	if err != nil {
		return w, err
	}
	// The last parent is main's commit and must match the trailer.
	w.Commit, w.CorrelationID = c.Trailer(object.TrailerConfig), c.Trailer(object.TrailerCorrelation)
	if len(c.Parents) == 0 || c.Parents[len(c.Parents)-1].String() != w.Commit {
		return w, fmt.Errorf("%w: its last parent is not the commit in its trailer, %q", reconciler.ErrRewritten,
			object.OneLine(w.Commit, object.MaxLine))
	}
	if w.Epoch, err = strconv.ParseUint(c.Trailer(object.TrailerEpoch), 10, 64); err != nil {
		return w, fmt.Errorf("%w: its epoch is not a number", reconciler.ErrRewritten)
	}
	for _, line := range c.Trailers(trailerPermitted) {
		blob, quoted, _ := strings.Cut(line, " ")
		path, err := strconv.Unquote(quoted)
		if _, bad := object.ParseID(blob); err != nil || blob != "-" && bad != nil {
			return w, fmt.Errorf("%w: a trailer that lists a permitted document is malformed: %s", reconciler.ErrRewritten,
				object.OneLine(line, object.MaxLine))
		}
		if w.Permitted == nil {
			w.Permitted = map[string]string{}
		}
		w.Permitted[path] = strings.TrimPrefix(blob, "-")
	}
	for _, quoted := range c.Trailers(trailerUnauthorised) {
		file, err := strconv.Unquote(quoted)
		if err != nil {
			return w, fmt.Errorf("%w: what it holds as unauthorised cannot be read: %s", reconciler.ErrRewritten,
				object.OneLine(quoted, object.MaxLine))
		}
		w.Held = append(w.Held, schema.Held{File: file, Reason: schema.HeldUnauthorised})
	}
	return w, nil
}
