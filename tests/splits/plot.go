package splits

import (
	"fmt"
	"math"
	"strings"
	"time"
)

// plot is a drawing of a series: requests per second as an area, and the 99th
// percentile of their times as a line on a logarithmic scale.
type plot struct {
	strings.Builder
	span time.Duration
	most float64
}

const (
	plotWidth, plotHeight   = 760, 340
	plotLeft, plotRight     = 70, 70
	plotTop, plotBottom     = 40, 50
	areaColour, lineColour  = "#4e79a7", "#e15759"
	plotFloor, plotDecades  = 1.0, 4.0 // milliseconds: 1 to 10,000
	inkColour, paperColour  = "#333", "#fff"
	shadeColour, gridColour = "#f2e9d8", "#ddd"
)

// draw returns a series as SVG, with the time of the splits shaded.
func draw(s *series, phases []phase) string {
	p := &plot{span: phases[len(phases)-1].to}
	windows := s.windows(p.span)
	for _, w := range windows {
		p.most = max(p.most, w.rate())
	}
	p.most = 2000 * math.Ceil(p.most/2000)
	fmt.Fprintf(p, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="%s">`+"\n", plotWidth, plotHeight, inkColour)
	p.rect(0, 0, plotWidth, plotHeight, paperColour)
	from, to := p.x(phases[1].from), p.x(phases[1].to)
	p.rect(from, plotTop, to-from, plotHeight-plotTop-plotBottom, shadeColour)
	p.axes()
	p.curves(windows)
	p.text(plotLeft, 20, "start", lineless(areaColour), "requests per second")
	p.text(plotWidth-plotRight, 20, "end", lineless(lineColour), "99th percentile, ms (logarithmic)")
	p.text((from+to)/2, plotTop+14, "middle", "", "the monitor splits")
	p.WriteString("</svg>\n")
	return p.String()
}

// windows are the seconds of a series.
func (s *series) windows(span time.Duration) []phase {
	var all []phase
	for at := time.Duration(0); at+time.Second <= span; at += time.Second {
		all = append(all, s.phase("", at, at+time.Second))
	}
	return all
}

func (p *plot) x(at time.Duration) float64 {
	return plotLeft + at.Seconds()/p.span.Seconds()*(plotWidth-plotLeft-plotRight)
}

// up is the place of a share of the height.
func up(share float64) float64 {
	return plotHeight - plotBottom - min(max(share, 0), 1)*(plotHeight-plotTop-plotBottom)
}

func latency(d time.Duration) float64 {
	return up(math.Log10(max(milliseconds(d), plotFloor)/plotFloor) / plotDecades)
}

func (p *plot) rect(x, y, width, height float64, colour string) {
	fmt.Fprintf(p, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`+"\n", x, y, width, height, colour)
}

func (p *plot) text(x, y float64, anchor, style, what string) {
	fmt.Fprintf(p, `<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`+"\n", x, y, anchor, style, what)
}

func lineless(colour string) string { return fmt.Sprintf(` fill="%s"`, colour) }

// axes draws both scales and the seconds.
func (p *plot) axes() {
	for i := range 5 {
		y := up(float64(i) / 4)
		fmt.Fprintf(p, `<path d="M%d %.1fH%d" stroke="%s"/>`+"\n", plotLeft, y, plotWidth-plotRight, gridColour)
		p.text(plotLeft-8, y+4, "end", lineless(areaColour), fmt.Sprintf("%.0f", p.most*float64(i)/4))
		p.text(plotWidth-plotRight+8, y+4, "start", lineless(lineColour), fmt.Sprintf("%.0f", plotFloor*math.Pow(10, float64(i))))
	}
	for at := time.Duration(0); at <= p.span; at += 5 * time.Second {
		p.text(p.x(at), plotHeight-plotBottom+18, "middle", "", fmt.Sprintf("%.0f", at.Seconds()))
	}
	p.text(plotWidth/2, plotHeight-12, "middle", "", "seconds")
}

// curves draws the windows.
func (p *plot) curves(windows []phase) {
	var area, line strings.Builder
	fmt.Fprintf(&area, "M%.1f %.1f", p.x(0), up(0))
	for i := range windows {
		w := &windows[i]
		middle := p.x((w.from + w.to) / 2)
		fmt.Fprintf(&area, "L%.1f %.1f", middle, up(w.rate()/p.most))
		verb := "L"
		if i == 0 {
			verb = "M"
		}
		fmt.Fprintf(&line, "%s%.1f %.1f", verb, middle, latency(w.quantile(0.99)))
	}
	fmt.Fprintf(&area, "L%.1f %.1fZ", p.x(p.span), up(0))
	fmt.Fprintf(p, `<path d="%s" fill="%s" fill-opacity="0.35" stroke="%s"/>`+"\n", area.String(), areaColour, areaColour)
	fmt.Fprintf(p, `<path d="%s" fill="none" stroke="%s" stroke-width="1.5"/>`+"\n", line.String(), lineColour)
}
