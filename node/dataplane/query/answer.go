// SPDX-License-Identifier: Apache-2.0

package query

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
	"time"

	"github.com/treaty-node/treaty/node/contract"
	"github.com/treaty-node/treaty/node/dataplane/source"
	"github.com/treaty-node/treaty/node/dataset"
	"github.com/treaty-node/treaty/node/datatools"
)

// Answer is a released result.
type Answer = datatools.Result

// Answer reads the engine's rows. ErrGroups when there is none.
func (p *Plan) Answer(rows source.Rows) (*Answer, error) {
	if len(rows) == 0 && !p.rows && !p.page {
		return nil, ErrGroups
	}
	a := &Answer{Rows: make([][]any, len(rows))}
	for _, o := range p.columns {
		a.Columns = append(a.Columns, datatools.Column{Name: o.name, Type: o.typ})
	}
	var draw *sampler
	if p.noise != nil {
		draw = newSampler(p.noise.over(rows))
		a.Noise = &datatools.NoiseInfo{Epsilon: p.noise.Terms.EpsilonPerQuery}
	}
	width := 2 // how many rows were used, and how many there are in all
	if p.rows {
		width = 1
	}
	for _, o := range p.columns {
		width += o.n
	}
	var err error
	for i, r := range rows {
		if len(r) != width {
			return nil, ErrRows
		}
		total, ok2 := r[width-1].(int64)
		used, ok1 := int64(1), true
		if !p.rows {
			used, ok1 = r[width-2].(int64)
		}
		if !ok1 || !ok2 {
			return nil, ErrRows
		}
		a.UsedRows, a.TotalRows = a.UsedRows+used, total
		a.Rows[i] = make([]any, len(p.columns))
		for j, o := range p.columns {
			cells := r[o.from : o.from+o.n]
			if draw != nil && o.op != "" {
				if cells, err = p.noise.add(draw, p, o, cells[0]); err != nil {
					return nil, err
				}
			}
			v, err := o.value(cells)
			if err != nil {
				return nil, fmt.Errorf("%w (column %d)", err, j+1)
			}
			a.Rows[i][j] = v
		}
	}
	if p.noise != nil {
		a.UsedRows, a.TotalRows = 0, 0 // exact numbers that nothing was added to
	}
	return a, nil
}

// value makes one cell of the answer.
func (o output) value(cells []any) (any, error) {
	if cells[0] == nil {
		return nil, nil
	}
	if o.col.Kind == dataset.Double && (o.op == contract.OpAvg || o.op == contract.OpMedian) {
		x, ok := cells[0].(float64)
		if !ok {
			return nil, ErrRows
		}
		switch second := cells[1].(type) {
		case int64: // average
			return finite(x / float64(second))
		case float64: // median; halves first, so that the sum stays finite
			return finite(x/2 + second/2)
		}
		return nil, ErrRows
	}
	switch o.op {
	case contract.OpSum:
		if o.col.Kind != dataset.Double {
			d, err := number(cells[0], o.col.Scale)
			if err != nil {
				return nil, err
			}
			return d.String(), nil
		}
	case contract.OpAvg:
		d, err := number(cells[0], o.col.Scale)
		count, ok := cells[1].(int64)
		if err != nil || !ok || count < 1 {
			return nil, ErrRows
		}
		return d.Quo(count, o.col.Scale+AvgDigits).String(), nil
	case contract.OpMedian:
		low, err := number(cells[0], o.col.Scale)
		if err != nil {
			return nil, err
		}
		high, err := number(cells[1], o.col.Scale)
		if err != nil {
			return nil, err
		}
		sum := dataset.Decimal{Unscaled: new(big.Int).Add(low.Unscaled, high.Unscaled), Scale: o.col.Scale}
		return sum.Quo(2, o.col.Scale+1).String(), nil
	}
	return plain(cells[0], o.col.Kind)
}

const maxSafe = 1 << 53

// plain writes a cell that the engine computed as it stands.
func plain(cell any, kind contract.Kind) (any, error) {
	switch v := cell.(type) {
	case string, bool:
		return v, nil
	case int64:
		if v > maxSafe || v < -maxSafe {
			return strconv.FormatInt(v, 10), nil
		}
		return v, nil
	case dataset.Decimal:
		return v.String(), nil
	case float64:
		return finite(v)
	case time.Time:
		switch kind {
		case dataset.Date:
			return v.Format(time.DateOnly), nil
		case dataset.TimestampTZ:
			return v.UTC().Format("2006-01-02T15:04:05.999999Z"), nil
		default:
			return v.Format("2006-01-02T15:04:05.999999"), nil
		}
	}
	return nil, ErrRows
}

// finite refuses what JSON cannot say.
func finite(f float64) (any, error) {
	if math.IsInf(f, 0) || math.IsNaN(f) {
		return nil, source.ErrRange
	}
	return f, nil
}
