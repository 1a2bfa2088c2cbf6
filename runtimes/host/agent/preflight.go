package agent

import (
	"context"
	"slices"
	"strings"

	"berth/runtimes"
)

// preflight lists all conflicts at once, before anything is written.
func (a *Agent) preflight(ctx context.Context, op *runtimes.Preflight) error {
	for _, p := range op.Paths {
		if err := a.allow.check(p); err != nil {
			return err
		}
	}
	paths := slices.Clone(op.Paths)
	var found []string
	for _, one := range op.Services {
		spec, err := a.allow.service(&one)
		if err != nil {
			return err
		}
		obstacles, err := a.services.init.obstacles(ctx, service{name: one.Name, unit: one.Unit, spec: spec})
		if err != nil {
			return err
		}
		found = append(found, obstacles...)
		for _, t := range serviceTargets(spec) {
			if !t.shared {
				paths = append(paths, t.path)
			}
		}
	}
	foreign, err := a.paths.foreign(paths)
	if err != nil {
		return err
	}
	var unique []string
	for _, what := range append(found, foreign...) {
		if !slices.Contains(unique, what) {
			unique = append(unique, what)
		}
	}
	if len(unique) == 0 {
		return nil
	}
	return &Fault{Code: runtimes.CodeForeign, Message: bounded([]byte(strings.Join(unique, "; ")))}
}
