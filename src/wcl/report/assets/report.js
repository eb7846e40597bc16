"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
drawCharts(data);
if (data.map) drawMaps(document.getElementById("maps"), data.map, data.runs);
