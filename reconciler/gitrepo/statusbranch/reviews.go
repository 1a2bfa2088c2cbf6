package statusbranch

import (
	"fmt"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"berth/reconciler"
	"berth/reconciler/gitrepo/object"
	"berth/reconciler/plan"
	"berth/schema"
)

const (
	// reviewsDir is the directory of berth/status with the reviews of pull
	// requests.
	reviewsDir = "pulls"
	// maxReview bounds one review in bytes: twice the size of the largest number of
	// units.
	maxReview = 4 << 20
)

// reviewPath returns the path of a pull request's review.
func reviewPath(pull int) string { return fmt.Sprintf("%s/%d.yaml", reviewsDir, pull) }

// reviewOf returns the pull request whose review has this path; 0: not a path of
// a review.
func reviewOf(path string) int {
	n, err := strconv.Atoi(strings.TrimSuffix(strings.TrimPrefix(path, reviewsDir+"/"), ".yaml"))
	if err != nil || n <= 0 || reviewPath(n) != path {
		return 0
	}
	return n
}

// readReview reads the review at path. The zero entry means that it was deleted.
func (r *View) readReview(path string, e object.Entry) (statusFile, error) {
	f := statusFile{path: path, pull: reviewOf(path)}
	switch {
	case e.ID.IsZero():
		return f, nil
	case f.pull == 0:
		f.Warning = "no place for a review"
		return f, nil
	}
	data, warning, err := r.objects.Blob(e, maxReview)
	if err != nil || warning != "" {
		f.Warning = warning
		return f, err
	}
	return decodeReview(path, f.pull, data), nil
}

// decodeReview parses a review. An invalid review has a Warning.
func decodeReview(path string, pull int, data []byte) statusFile {
	f := statusFile{path: path, pull: pull}
	var v plan.Review
	switch err := yaml.Unmarshal(data, &v); {
	case err != nil:
		f.Warning = "not a review: " + object.OneLine(err.Error(), object.MaxLine)
	case v.APIVersion != schema.APIVersion || v.Kind != plan.KindReview:
		f.Warning = fmt.Sprintf("apiVersion and kind are not %s and %s", schema.APIVersion, plan.KindReview)
	case v.Pull != pull:
		f.Warning = "its pull request is not that of its path"
	case tooLong(&v.Shown) || v.Next != nil && tooLong(v.Next):
		f.Warning = fmt.Sprintf("it is of more than %d units", plan.MaxReviewedUnits)
	default:
		f.review = &v
	}
	return f
}

func tooLong(s *plan.Shown) bool {
	return len(s.Units) > plan.MaxReviewedUnits || len(s.More) > plan.MaxMoreUnits
}

// reviews writes and removes reviews. It returns them as a reader would parse
// them.
func (w *statusWriter) reviews(b reconciler.StatusBatch) ([]statusFile, error) {
	var files []statusFile
	for _, v := range b.Reviews {
		v.APIVersion, v.Kind = schema.APIVersion, plan.KindReview
		path := reviewPath(v.Pull)
		data, err := yaml.Marshal(v)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		f := decodeReview(path, v.Pull, data)
		if f.review == nil || reviewOf(path) == 0 || len(data) > maxReview {
			return nil, fmt.Errorf("%s: %d bytes that would not be read back: %s", path, len(data), f.Warning)
		}
		files = append(files, f)
		if err := w.put(path, data); err != nil {
			return nil, err
		}
	}
	for _, n := range b.ReviewsGone {
		w.over.Remove(reviewPath(n))
		files = append(files, statusFile{path: reviewPath(n), pull: n})
	}
	return files, nil
}
